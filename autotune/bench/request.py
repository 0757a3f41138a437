"""What a bench is asked to do, and what it says while it does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.bench.result import Provenance
from autotune.errors import InputError, nearest_name
from autotune.gpu import GpuSpec
from autotune.protocol import Protocol
from autotune.records import DeviceIdentity, Environment
from autotune.spec.kernel_spec import KernelSpec
from autotune.suites import Shape, Suite

MODES = ("warm", "cold")


@dataclass(frozen=True)
class BenchRequest:
    """A kernel, shapes and modes on one board."""

    spec: KernelSpec
    suite: Suite
    shapes: tuple[Shape, ...]
    """Those of the suite that are asked for."""
    protocols: tuple[Protocol, ...]
    gpu: GpuSpec
    device: DeviceIdentity
    environment: Environment
    board: str
    session: str
    commit: str = ""
    """Of whatever is measured, as the user tells it."""
    limit_s: float | None = None
    """No shape is begun after this."""
    fresh: bool = False
    """Whether shapes that were measured before are measured again."""

    @property
    def provenance(self) -> Provenance:
        """What all shapes of the result have in common."""
        from autotune.render import kernel_hash

        software = self.environment
        return Provenance(
            suite=self.suite.name,
            kernel=self.spec.name,
            kernel_hash=kernel_hash(self.spec),
            commit=self.commit,
            gpu=self.gpu.name,
            device=self.device.key,
            driver=software.driver,
            cuda=software.cuda,
            nvrtc=software.nvrtc,
            autotune=software.autotune,
        )


@dataclass(frozen=True)
class BenchProgress:
    """One step that is about to begin or has ended."""

    number: int
    total: int
    shape: str
    text: str


def choose_shapes(suite: Suite, names: Sequence[str]) -> tuple[Shape, ...]:
    """The shapes of these names or groups in the suite's order, all without names; raises InputError."""
    known = {shape.name for shape in suite.shapes} | {shape.group for shape in suite.shapes if shape.group}
    for name in names:
        if name not in known:
            raise InputError(
                f"suite {suite.name} has no shape or group {name!r}",
                key="--shapes",
                nearest=nearest_name(name, sorted(known)),
            )
    return tuple(shape for shape in suite.shapes if not names or shape.name in names or shape.group in names)


def choose_modes(text: str) -> tuple[Protocol, ...]:
    """The protocols of `warm,cold`, each once; raises InputError."""
    modes = [part.strip() for part in text.split(",") if part.strip()]
    for mode in modes:
        if mode not in MODES:
            raise InputError(
                f"must be {' or '.join(MODES)}, or both with a comma, got {mode!r}",
                key="--mode",
                nearest=nearest_name(mode, MODES),
            )
    if not modes:
        raise InputError("must name a mode, got an empty text", key="--mode", nearest="warm,cold")
    return tuple(Protocol().warm() if mode == "warm" else Protocol() for mode in dict.fromkeys(modes))
