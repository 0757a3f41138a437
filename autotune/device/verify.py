"""Whether a kernel computes what it should, and writes nothing else: asked before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from autotune.buffers import Layout, fill, lay_out, output_names, poisoned_outputs, stray_write
from autotune.candidate import CompiledKernel, Runnable
from autotune.comparison import WorstElement, in_range, quick_error, worst_element
from autotune.device.gpu_device import GpuDevice
from autotune.device.measure import Bind
from autotune.device.messages import Workload
from autotune.device.scratch import Scratch
from autotune.errors import StageFailure
from autotune.records import Accuracy, Status
from autotune.references import Expected, get_reference

Load: TypeAlias = Callable[[CompiledKernel], AbstractContextManager[object]]


class Trap:
    """Guarded buffers of one workload with their untouched image and the expected result.

    Made once per problem and worker: the reference costs more than most kernels.
    """

    def __init__(self, device: GpuDevice, workload: Workload) -> None:
        """Generates the data on the device and computes the float64 reference there."""
        xp = device.xp
        self.workload = workload
        self.layout: Layout = lay_out(workload.buffers, guarded=True)
        self.outputs = output_names(workload.buffers)
        self._device = device
        poisoned = poisoned_outputs(workload.buffers, workload.values)
        self._image = device.allocate(self.layout.nbytes)
        fill(self._image, self.layout, workload.data, workload.seed, poisoned, xp)
        reference = get_reference(workload.reference)
        self.expected: Expected = reference.expected(self.layout.views(self._image), workload.known, xp)
        # Where all that is expected is an ordinary number, so are the errors of a right kernel.
        self._ordinary = in_range(self.layout.views(self._image), self.expected, xp)
        self._arena = device.allocate(self.layout.nbytes)
        self.nbytes = 2 * self.layout.nbytes + sum(
            int(array.nbytes) for array in (*self.expected.values.values(), *self.expected.scale.values())
        )

    def addresses(self) -> dict[str, int]:
        """The pointers that a kernel under test gets."""
        return self.layout.addresses(self._device.address(self._arena))

    def reset(self) -> None:
        """Restores every byte."""
        self._arena[...] = self._image

    def check(self) -> Accuracy:
        """How exact the outputs are after a run.

        Raises StageFailure (`wrong_result`) where an element is wrong or where anything but outputs changed:
        an input, the padding between rows or a guard zone.
        """
        xp = self._device.xp
        views, originals = self.layout.views(self._arena), self.layout.views(self._image)
        got = {name: views[name] for name in self.outputs}
        worst, error = None, quick_error(got, self.expected, xp) if self._ordinary else math.nan
        if not error <= self.expected.tolerance:
            worst = worst_element(got, self.expected, xp)
            error = worst.error if worst else 0.0
        elements = sum(int(value.size) for value in self.expected.values.values())
        accuracy = Accuracy(error, self.expected.tolerance, elements)
        for name in self.outputs:
            views[name][...] = originals[name]
        stray = stray_write(self._arena, self._image, self.layout, xp)
        wrong = worst is not None and not worst.error <= self.expected.tolerance
        if not wrong and stray is None:
            return accuracy
        parts = [stray] if stray else []
        if wrong and worst is not None:
            parts.append(_describe(worst, self.expected.tolerance))
        raise StageFailure(Status.WRONG_RESULT, "; ".join(parts), accuracy)


def verify_run(device: GpuDevice, run: Runnable, trap: Trap, loaded: Load | None = None) -> Accuracy:
    """Runs a kernel once in the trap; raises StageFailure where it is wrong, is refused or crashes.

    `loaded` gives its function; by default the device's own, which unloads it afterwards.
    """
    scratch = Scratch(device, [run.launch])
    trap.reset()
    if not run.launch.empty:
        with (loaded or device.loaded)(run.kernel) as function:
            device.bind(function, run.launch, {**trap.addresses(), **scratch.addresses(run.launch)})()
            device.synchronize()
    accuracy = trap.check()
    if dirt := scratch.dirt(run.launch):
        raise StageFailure(Status.WRONG_RESULT, dirt, accuracy)
    return accuracy


def verify_call(device: GpuDevice, bind: Bind, trap: Trap) -> Accuracy:
    """Like `verify_run` for a library's routine, which has no launch of its own."""
    trap.reset()
    bind(trap.addresses())()
    device.synchronize()
    return trap.check()


def _describe(worst: WorstElement, tolerance: float) -> str:
    place = ", ".join(str(i) for i in worst.index)
    return (
        f"{worst.output}[{place}] is {worst.got:.9g}, expected {worst.expected:.9g}: "
        f"error {worst.error:.3g} exceeds {tolerance:g}"
    )
