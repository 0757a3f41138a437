"""How a request to a child process can fail.

ChildFailure              base
├── ChildTimeout          no reply in time; the child has been killed
├── ChildTooBig           the child and its children outgrew their memory limit; killed
├── ChildDied             the child ended without a reply
└── ChildRaised           the handler raised something unexpected; the child lives on
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from autotune.errors import AutotuneError


@dataclass(eq=False)
class ChildFailure(AutotuneError):
    """The child gave no result; `output` is the end of what it printed during this request."""

    output: str = ""

    def __post_init__(self) -> None:
        super().__init__(*(getattr(self, name) for name in self.__dataclass_fields__))


@dataclass(eq=False)
class ChildTimeout(ChildFailure):
    """No reply within the limit."""

    timeout_s: float = 0.0

    def __str__(self) -> str:
        return f"no reply within {self.timeout_s:g} s"


@dataclass(eq=False)
class ChildTooBig(ChildFailure):
    """The resident memory of the child and its children exceeded the limit."""

    resident_bytes: int = 0
    limit_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.resident_bytes >> 20} MiB resident exceed the limit of {self.limit_bytes >> 20} MiB"


@dataclass(eq=False)
class ChildDied(ChildFailure):
    """The child ended; `returncode` is negative for a signal."""

    returncode: int = 0

    @property
    def signal_name(self) -> str:
        """E.g. `SIGSEGV`; empty where the child exited by itself."""
        if self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    def __str__(self) -> str:
        return f"ended by {self.signal_name}" if self.signal_name else f"exited with code {self.returncode}"


@dataclass(eq=False)
class ChildRaised(ChildFailure):
    """The handler raised an unexpected exception; it comes as text, since it may not pickle."""

    kind: str = ""
    """Name of the exception's class."""
    message: str = ""
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
