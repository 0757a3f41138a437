"""A list of configurations in place of a strategy: asked for in its order, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from autotune.config import Config
from autotune.records import Outcome, TrialRecord
from autotune.space.search_space import SearchSpace


class Asker(Protocol):
    """What proposes configurations for one problem and hears what becomes of them."""

    def ask(self) -> Config | None:
        """A configuration not asked, claimed or learnt before; None once there is none left."""
        ...

    def claim(self, config: Config) -> bool:
        """Takes in a configuration that is tried here because another problem asked; False where it is known."""
        ...

    def tell(self, config: Config, outcome: Outcome) -> None:
        """What became of an asked or claimed configuration."""
        ...

    def learn(self, records: Iterable[TrialRecord]) -> None:
        """Takes in trials that were not asked here; configurations in flight are left to `tell`."""
        ...

    def share(self, own: str, sessions: Collection[str]) -> None:
        """Several sessions search the space; this one is `own`."""
        ...


class Listing:
    """Asks for the legal ones of a list; see `Asker`."""

    def __init__(self, space: SearchSpace, configs: Sequence[Config]) -> None:
        self._left = deque(config for config in configs if config in space)
        self._listed = frozenset(self._left)
        self._known: set[Config] = set()

    def ask(self) -> Config | None:
        """The next one in order."""
        while self._left:
            config = self._left.popleft()
            if config not in self._known:
                self._known.add(config)
                return config
        return None

    def claim(self, config: Config) -> bool:
        """Only what is on the list."""
        if config in self._known or config not in self._listed:
            return False
        self._known.add(config)
        return True

    def tell(self, config: Config, outcome: Outcome) -> None:
        """Nothing: the order is fixed."""

    def learn(self, records: Iterable[TrialRecord]) -> None:
        """Those need not be tried again."""
        self._known.update(record.config for record in records)

    def share(self, own: str, sessions: Collection[str]) -> None:
        """Begins somewhere else than the others do."""
        place = sorted(sessions).index(own) if own in sessions else 0
        self._left.rotate(-(len(self._left) * place // max(1, len(sessions))))
