"""The candidates asked for and not yet tried: compiled ahead, taken as they become ready."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait

from autotune.candidate import Candidate, CompiledKernel
from autotune.compile.ahead import CompilesAhead
from autotune.render import render
from autotune.trial import Stages


class Window:
    """Holds as many candidates as the stages want in flight; one where they cannot compile ahead."""

    def __init__(self, stages: Stages) -> None:
        self._ahead = stages if isinstance(stages, CompilesAhead) else None
        self._waiting: list[tuple[Candidate, Future[CompiledKernel] | None]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether another candidate should be asked for."""
        return len(self._waiting) < (max(1, self._ahead.ahead) if self._ahead else 1)

    def add(self, candidate: Candidate) -> None:
        """Begins compiling the candidate where the stages can do so early."""
        future = None
        if self._ahead:
            source = render(candidate.spec, candidate.gpu, candidate.problem, candidate.config)
            future = self._ahead.prefetch(candidate, source)
        self._waiting.append((candidate, future))

    def take(self) -> Candidate:
        """The first candidate, in the order asked, that is ready; waits until one is."""
        futures = [future for _, future in self._waiting if future is not None]
        if futures:
            wait(futures, return_when=FIRST_COMPLETED)
        for place, (candidate, future) in enumerate(self._waiting):
            if future is None or future.done():
                del self._waiting[place]
                return candidate
        raise IndexError("take() from an empty window")

    def drop_all(self) -> None:
        """Calls off what is still queued for compiling."""
        for _, future in self._waiting:
            if future is not None:
                future.cancel()
        self._waiting.clear()
