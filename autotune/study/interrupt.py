"""Ctrl-C that loses nothing: a trial in flight may be cut short, a finished one is always stored first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TypeVar

Result = TypeVar("Result")


class Interrupt:
    """Holds SIGINT back except where work may be abandoned; a second Ctrl-C always gets through.

    Python delivers signals to the main thread only, so elsewhere `requested` stays False.
    """

    def __init__(self) -> None:
        self.requested = False
        self._may_raise = False
        self._installed = False
        self._previous: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            # None: the earlier handler was not set from Python and cannot be put back.
            signal.signal(signal.SIGINT, signal.SIG_DFL if self._previous is None else self._previous)

    def attempt(self, work: Callable[[], Result]) -> Result | None:
        """What the work gives; None where Ctrl-C came before or during it."""
        result = None
        try:
            self._may_raise = True
            if not self.requested:
                result = work()
            self._may_raise = False
        except KeyboardInterrupt:
            self.requested = True
        finally:
            self._may_raise = False
        return result

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if again or self._may_raise:
            raise KeyboardInterrupt
