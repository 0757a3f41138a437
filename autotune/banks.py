"""Counts the wavefronts of a shared-memory access by simulating the 32 lanes of a warp.

Shared memory has 32 banks of one word (4 bytes). A wavefront serves any words in different banks, and
each of them to any number of lanes. Wider accesses go in parts: 8-byte ones by half-warps, 16-byte ones by
quarter-warps. Two neighbouring parts go as one where every lane asks for the same address as its neighbour,
or every lane for the same as the one two lanes away; a 16-byte access never takes fewer than two wavefronts.
(Observed on devices and widely reported; NVIDIA documents the 4-byte case only.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.config import Value
from autotune.errors import InputError
from autotune.spec.kernel_spec import KernelSpec, SharedAccess

LANES = 32
BANKS = 32


@dataclass(frozen=True)
class AccessCost:
    """What one declared shared-memory access costs a warp."""

    name: str
    wavefronts: int
    ideal: int
    """Wavefronts without any bank conflict, for the words it touches."""


def wavefronts(access: SharedAccess, names: Mapping[str, Value]) -> int:
    """Wavefronts that one warp's access takes; `names` are the config's, see `launch.config_names`."""
    return count_wavefronts(*_lanes(access, names))


def access_costs(spec: KernelSpec, names: Mapping[str, Value]) -> tuple[AccessCost, ...]:
    """The cost of each access that the spec declares under `shared_accesses`."""
    costs = []
    for access in spec.shared_accesses:
        addresses, width = _lanes(access, names)
        words = {address + offset for address in addresses for offset in range(width)}
        ideal = max(-(-len(words) // BANKS), 2 if width == 4 else 1)
        costs.append(AccessCost(access.name, count_wavefronts(addresses, width), ideal))
    return tuple(costs)


def count_wavefronts(addresses: Sequence[int], width: int) -> int:
    """Wavefronts for the word addresses of 32 lanes that each ask for `width` (1, 2 or 4) words."""
    if width == 1:
        return _conflicts(addresses, width)
    if width == 2:
        return _parts(addresses, width)
    return _parts(addresses[: LANES // 2], width) + _parts(addresses[LANES // 2 :], width)


def _parts(addresses: Sequence[int], width: int) -> int:
    merged = any(
        all(addresses[lane] == addresses[lane ^ distance] for lane in range(len(addresses)))
        for distance in (1, 2)
    )
    if merged:
        return _conflicts(addresses, width)
    middle = len(addresses) // 2
    return _conflicts(addresses[:middle], width) + _conflicts(addresses[middle:], width)


def _conflicts(addresses: Sequence[int], width: int) -> int:
    """The most distinct words that fall into one bank."""
    words_of_bank: dict[int, set[int]] = defaultdict(set)
    for address in addresses:
        for word in range(address, address + width):
            words_of_bank[word % BANKS].add(word)
    return max(len(words) for words in words_of_bank.values())


def _lanes(access: SharedAccess, names: Mapping[str, Value]) -> tuple[list[int], int]:
    width = access.width.evaluate(names)
    if width not in (1, 2, 4):
        raise InputError(
            f"a lane accesses 1, 2 or 4 words at once, got {width}",
            key=f"shared_accesses.{access.name}.width",
        )
    addresses = []
    for lane in range(LANES):
        address = access.address.evaluate({**names, "lane": lane})
        if isinstance(address, bool) or not isinstance(address, int) or address < 0 or address % width:
            raise InputError(
                f"an address is a word number divisible by the width {width}, lane {lane} has {address}",
                key=f"shared_accesses.{access.name}.address",
            )
        addresses.append(address)
    return addresses, int(width)
