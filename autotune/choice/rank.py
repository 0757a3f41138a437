"""Which configuration is fastest, from measurements of several sessions and boards. Never a raw minimum.

Times are compared directly only within one block: one session on one board. Blocks are laid over each other
by the configurations they share: log time = effect of the block + effect of the configuration, fitted with
medians, so that a board that is 3% faster throughout wins nothing for what happened to run on it. A vendor
routine's baseline counts as one more shared configuration. Blocks that share nothing cannot be compared; then
the latest counts. Predictions of one version of the model are one block, whenever they were made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from autotune.config import Config
from autotune.records import Origin, Round, Status, TrialRecord

TIE = 0.01
"""Configurations whose times differ by at most this fraction, or by their spread, are tied."""

Name = Config | str
"""A configuration, or a vendor routine's name."""


@dataclass(frozen=True)
class Standing:
    """One configuration's place."""

    config: Config
    relative: float
    """Its time over that of the fastest, board and session taken out; the fastest has 1."""
    spread: float
    """Half the interquartile range of its samples over their median."""
    record: TrialRecord
    """The measurement that speaks for it: current before stale, final before search, then the latest."""

    def tied(self, other: Standing) -> bool:
        """Whether the two cannot be told apart."""
        slower, faster = max(self.relative, other.relative), min(self.relative, other.relative)
        return slower / faster <= 1 + max(TIE, self.spread, other.spread)


def rank(
    records: Iterable[TrialRecord], is_current: Callable[[TrialRecord], bool] = lambda record: True
) -> tuple[Standing, ...]:
    """The configurations with an `ok` record, fastest first; empty where there is none.

    The records are of one kernel, problem, kind of device, protocol and origin, and may include baselines.
    Where a configuration has current records, its stale ones only help to compare blocks.
    """
    blocks = _blocks(records)
    if not any(isinstance(name, Config) for block in blocks for name in block):
        return ()
    effects = _latest_comparable(blocks)

    times: dict[Config, list[float]] = defaultdict(list)
    evidence: dict[Config, list[TrialRecord]] = defaultdict(list)
    for config in {name: None for index in effects for name in blocks[index] if isinstance(name, Config)}:
        seen = [(index, blocks[index][config]) for index in effects if config in blocks[index]]
        current = [(index, cell) for index, cell in seen if any(map(is_current, cell.records))]
        for index, cell in current or seen:
            times[config].append(cell.log_time - effects[index])
            evidence[config] += cell.records

    level = {config: median(logs) for config, logs in times.items()}
    tried = {config: min(record.created for record in evidence[config]) for config in level}
    # Equals, as the model makes many, in the order tried: that begins at the kernel's default.
    order = sorted(level, key=lambda config: (level[config], tried[config], config.key))
    standings = []
    for config in order:
        relative = math.exp(level[config] - level[order[0]])
        record = max(
            evidence[config], key=lambda one: (is_current(one), one.round is Round.FINAL, one.created)
        )
        standings.append(Standing(config, relative, _spread(evidence[config]), record))
    return tuple(standings)


@dataclass(frozen=True)
class _Cell:
    """One configuration in one block."""

    log_time: float
    records: tuple[TrialRecord, ...]


_Block = Mapping[Name, _Cell]


def _blocks(records: Iterable[TrialRecord]) -> list[_Block]:
    """One block per session and board, or version of the model, oldest first."""
    groups: dict[tuple[str, str], list[TrialRecord]] = defaultdict(list)
    for record in records:
        if record.outcome.status is Status.OK:
            predicted = record.outcome.origin is Origin.PREDICTED
            group = (record.environment.autotune, "") if predicted else (record.session, record.board)
            groups[group].append(record)
    ordered = sorted(groups.values(), key=lambda group: max(record.created for record in group))
    return [_block(group) for group in ordered]


def _block(records: Sequence[TrialRecord]) -> _Block:
    """The final round's time where there is one; search times are moved onto the final round's level.

    The leaders were chosen for looking fast once, and the board is warmer at the end: without the move, those
    not measured again would look too fast beside them.
    """
    cells: dict[Round, dict[Config, _Cell]] = {}
    for round_ in Round:
        by_config: dict[Config, list[TrialRecord]] = defaultdict(list)
        for record in records:
            if record.round is round_:
                by_config[record.config].append(record)
        cells[round_] = {config: _cell(group) for config, group in by_config.items()}
    search, final = cells[Round.SEARCH], cells[Round.FINAL]
    shared = [final[config].log_time - search[config].log_time for config in final if config in search]
    move = median(shared) if shared else 0.0
    block: dict[Name, _Cell] = {
        config: _Cell(cell.log_time + move, cell.records) for config, cell in search.items()
    }
    for config, cell in final.items():
        block[config] = cell
    baselines: dict[str, list[TrialRecord]] = defaultdict(list)
    for record in records:
        if record.round is Round.BASELINE:
            baselines[record.kernel].append(record)
    return block | {name: _cell(group) for name, group in baselines.items()}


def _cell(records: Sequence[TrialRecord]) -> _Cell:
    return _Cell(median(_log_time(record) for record in records), tuple(records))


def _latest_comparable(blocks: Sequence[_Block]) -> dict[int, float]:
    """Effects of the latest block that ranks anything and of all that can be compared with it, by index."""
    left = set(range(len(blocks)))
    components = []
    while left:
        effects = _component(blocks, left)
        left -= effects.keys()
        if any(isinstance(name, Config) for index in effects for name in blocks[index]):
            components.append(effects)
    return max(components, key=max)


def _component(blocks: Sequence[_Block], left: set[int]) -> dict[int, float]:
    """Starts with the block of most configurations and adds, one by one, the one that shares most."""
    first = max(left, key=lambda index: (len(blocks[index]), index))
    effects = {first: 0.0}
    logs: dict[Name, list[float]] = {name: [cell.log_time] for name, cell in blocks[first].items()}
    waiting = left - {first}
    while waiting:
        nearest = max(waiting, key=lambda index: (len(logs.keys() & blocks[index].keys()), index))
        shared = logs.keys() & blocks[nearest].keys()
        if not shared:
            break
        block = blocks[nearest]
        effects[nearest] = median(block[name].log_time - median(logs[name]) for name in shared)
        for name, cell in block.items():
            logs.setdefault(name, []).append(cell.log_time - effects[nearest])
        waiting.remove(nearest)
    return effects


def _log_time(record: TrialRecord) -> float:
    time_ms = record.outcome.time_ms
    assert time_ms is not None
    # A clock that ticks too coarsely may read zero.
    return math.log(max(time_ms, 1e-9))


def _spread(records: Iterable[TrialRecord]) -> float:
    spreads = [record.outcome.measurement.spread for record in records if record.outcome.measurement]
    return median(spreads) if spreads else 0.0
