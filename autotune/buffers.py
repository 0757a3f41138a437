"""Array arguments in memory: where they lie, their data, and the guard zones that show a stray write.

One *arena* of bytes holds all arrays of a call. Whatever is not an element of an array (the zones between
arrays and the padding between rows) carries a known pattern that reads as NaN, so that using it spoils a
result and writing to it is seen. Works on NumPy and CuPy alike; `xp` is the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from autotune.candidate import BufferPlan
from autotune.errors import InputError
from autotune.references import Array

PATTERN = 0x7FF77FF7
"""Words of guard zones, of padding and of outputs before a run: NaN as float16, float32 and float64 alike."""
BOUNDARY = 256
"""Bytes; what offsets of buffers are counted from."""
MIN_GUARD_BYTES = 64 * 1024
MAX_GUARD_BYTES = 16 * 2**20
GUARD_ROWS = 256
"""A guard zone is as long as this many rows: more than a block tile that overhangs an array reaches."""
BLOCK = 2**24
"""Elements that are generated or compared in one step."""


@dataclass(frozen=True)
class Place:
    """Where one array lies in its arena."""

    plan: BufferPlan
    start: int
    """First byte."""
    rows: int
    columns: int
    item_bytes: int

    @property
    def nbytes(self) -> int:
        """Whole rows, the padding of the last one included."""
        return self.rows * self.plan.pitch * self.item_bytes

    def view(self, arena: Array) -> Array:
        """The elements, without padding, in the array's own shape; shares the arena's memory."""
        flat = arena[self.start : self.start + self.nbytes].view(self.plan.dtype)
        if not self.plan.shape:
            return flat[:1].reshape(())
        padded = flat.reshape(*self.plan.stored_shape[:-1], self.plan.pitch)
        view: Array = padded[..., : self.columns]
        return view.swapaxes(-1, -2) if self.plan.transposed else view

    def describe(self, byte: int) -> str:
        """What of this array lies at a byte of the arena, for messages."""
        row, rest = divmod((byte - self.start) // self.item_bytes, self.plan.pitch)
        if rest < self.columns:
            place = (rest, row) if self.plan.transposed else (row, rest)
            return f"element {list(place)} of {self.plan.name}"
        return f"the padding behind row {row} of {self.plan.name}"


@dataclass(frozen=True)
class Layout:
    """All arrays of a call in one arena."""

    places: tuple[Place, ...]
    nbytes: int

    def views(self, arena: Array) -> dict[str, Array]:
        """The arrays by name."""
        return {place.plan.name: place.view(arena) for place in self.places}

    def addresses(self, base: int) -> dict[str, int]:
        """The pointers by name for an arena at this address."""
        return {place.plan.name: base + place.start for place in self.places}

    def describe(self, byte: int) -> str:
        """What lies at a byte of the arena, for messages."""
        before: Place | None = None
        for place in self.places:
            if place.start <= byte < place.start + place.nbytes:
                return place.describe(byte)
            if place.start + place.nbytes <= byte:
                before = place
        if before is None:
            return f"{self.places[0].start - byte} bytes before {self.places[0].plan.name}"
        return f"{byte - before.start - before.nbytes} bytes past the end of {before.plan.name}"


def lay_out(buffers: Sequence[BufferPlan], *, guarded: bool) -> Layout:
    """Places for the arrays in order, with guard zones before, between and after them where asked."""
    places: list[Place] = []
    position = 0
    for plan in buffers:
        item_bytes = np.dtype(plan.dtype).itemsize
        shape = plan.stored_shape
        columns = shape[-1] if shape else 1
        rows = int(np.prod(shape[:-1], dtype=np.int64)) if shape else 1
        if plan.pitch < columns:
            raise InputError(
                f"a row of {columns} elements does not fit a pitch of {plan.pitch}",
                key=f"arguments.{plan.name}",
            )
        guard = _guard_bytes(plan.pitch * item_bytes) if guarded else 0
        start = _round_up(position + guard) + plan.offset * item_bytes
        place = Place(plan, start, rows, columns, item_bytes)
        places.append(place)
        position = start + place.nbytes + guard
    return Layout(tuple(places), _round_up(position))


def fill(
    arena: Array, layout: Layout, data: str, seed: int, poisoned: frozenset[str], xp: ModuleType
) -> None:
    """Writes the pattern everywhere and data into all arrays but the poisoned ones."""
    arena.view(xp.uint32)[...] = xp.uint32(PATTERN)
    for number, place in enumerate(layout.places):
        if place.plan.name in poisoned or place.rows * place.columns == 0:
            continue
        flat = arena[place.start : place.start + place.nbytes].view(place.plan.dtype)
        table = flat.reshape(place.rows, place.plan.pitch)[:, : place.columns]
        step = max(1, BLOCK // place.columns)
        # What must not be read are inputs; an output that is read needs real values.
        content = "normal" if data == "nan" and place.plan.role != "in" else data
        for top in range(0, place.rows, step):
            part = table[top : top + step]
            values = generate(content, part.size, top * place.columns, seed * 1000 + number, part.dtype, xp)
            part[...] = values.reshape(part.shape)


def generate(data: str, count: int, first: int, seed: int, dtype: np.dtype[Any], xp: ModuleType) -> Array:
    """`count` values of a seeded sequence from its element `first` on, the same on every device.

    Bits come from the splitmix64 finaliser of a counter, normal values by Box and Muller. Integers are small.
    """
    if data in ("zeros", "ones", "nan"):
        unread = float("nan") if np.dtype(dtype).kind == "f" else 0
        value = {"zeros": 0, "ones": 1, "nan": unread}[data]
        constant: Array = xp.full(count, value, dtype=dtype)
        return constant
    if data not in ("normal", "uniform"):
        raise InputError(f"data is normal, uniform, ones or zeros, got {data!r}", key="data")
    bits = xp.arange(first, first + count, dtype=xp.uint64)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits += np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    if np.dtype(dtype).kind in "iub":
        small: Array = (bits >> np.uint64(61)).astype(dtype)
        return small
    first_uniform = (bits >> np.uint64(40)).astype(xp.float32)
    if data == "uniform":
        uniform: Array = (first_uniform * np.float32(2.0**-24)).astype(dtype)
        return uniform
    second = (bits & np.uint64(0xFFFFFF)).astype(xp.float32) * np.float32(2 * np.pi * 2.0**-24)
    radius = xp.sqrt(xp.log((first_uniform + np.float32(1)) * np.float32(2.0**-24)) * np.float32(-2))
    normal: Array = (radius * xp.cos(second)).astype(dtype)
    return normal


def stray_write(arena: Array, image: Array, layout: Layout, xp: ModuleType) -> str | None:
    """Where the arena first differs from its image and by how many bytes; None where it does not."""
    now, before = arena.view(xp.uint32), image.view(xp.uint32)
    changed, first = 0, -1
    for start in range(0, now.size, BLOCK):
        different = now[start : start + BLOCK] != before[start : start + BLOCK]
        count = int(different.sum())
        if count and first < 0:
            first = start + int(different.argmax())
        changed += count
    if not changed:
        return None
    return f"{changed * 4} bytes changed that are no output, first at {layout.describe(first * 4)}"


def poisoned_outputs(buffers: Sequence[BufferPlan], scalars: Mapping[str, float | int]) -> frozenset[str]:
    """The arrays whose content a kernel must not read: outputs, and C where beta is zero."""
    unread = {"out"} | ({"inout"} if scalars.get("beta") == 0 else set())
    return frozenset(plan.name for plan in buffers if plan.role in unread)


def output_names(buffers: Sequence[BufferPlan]) -> tuple[str, ...]:
    """The arrays that a kernel may write."""
    return tuple(plan.name for plan in buffers if plan.role in ("out", "inout"))


def _guard_bytes(row_bytes: int) -> int:
    return _round_up(min(MAX_GUARD_BYTES, max(MIN_GUARD_BYTES, GUARD_ROWS * row_bytes)))


def _round_up(position: int) -> int:
    return -(-position // BOUNDARY) * BOUNDARY
