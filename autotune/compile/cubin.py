"""Reads a cubin, the ELF file of native GPU code: which kernels it holds and what they take.

The layout is that of a 64-bit little-endian ELF file. The vendor's own parts, as `readelf` shows them:
function symbols with bit 0x10 of `st_other` set are kernels, `.nv.info` holds (format, attribute, size)
items, and `.nv.shared.<kernel>` is as large as the kernel's shared memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.errors import AutotuneError

SYSTEM_SMEM_BYTES = 1024
"""Counted into a kernel's shared-memory section from sm_90 on: the system takes as much of each block."""
_MACHINE_CUDA = 190
_SYMBOL_FUNCTION = 2
_KERNEL_BIT = 0x10
_FORMAT_SIZED = 4
_ATTRIBUTE_REGISTERS = 0x2F
_ATTRIBUTE_STACK = 0x12
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class CubinError(AutotuneError):
    """The file is not a cubin this module can read."""


@dataclass(frozen=True)
class CubinKernel:
    """One kernel of a cubin."""

    name: str
    """Lowered (mangled) name."""
    registers: int
    stack_bytes: int
    static_smem_bytes: int
    """As declared in the source, without what the system takes."""


@dataclass(frozen=True)
class _Section:
    name: str
    data: bytes
    size: int
    info: int


def read_cubin(image: bytes) -> Mapping[str, CubinKernel]:
    """The kernels of a cubin by lowered name, in the order of its symbol table."""
    try:
        return _read(image)
    except (struct.error, IndexError, ValueError) as error:
        raise CubinError(f"the cubin is damaged or of an unknown layout: {error}") from error


def kernel_names(image: bytes) -> tuple[str, ...]:
    """Lowered names of the kernels in a cubin."""
    return tuple(read_cubin(image))


def architecture(image: bytes) -> str:
    """What a cubin was built for, e.g. `sm_86`; it also runs on later minor versions of the same major."""
    if len(image) < _HEADER.size or image[:4] != b"\x7fELF":
        raise CubinError("not an ELF file")
    fields = _HEADER.unpack_from(image)
    abi_version, flags = image[8], fields[7]
    # The number sits in the second byte of the flags since ABI 8, before that in the first.
    return f"sm_{(flags >> 8) & 0xFF if abi_version >= 8 else flags & 0xFF}"


def _read(image: bytes) -> dict[str, CubinKernel]:
    if image[:4] != b"\x7fELF":
        raise CubinError("not an ELF file")
    header = _HEADER.unpack_from(image)
    if header[2] != _MACHINE_CUDA:
        raise CubinError(f"an ELF file for machine {header[2]}, not {_MACHINE_CUDA} (CUDA)")
    sections = _sections(
        image, offset=header[6], entry_size=header[11], count=header[12], names_index=header[13]
    )
    by_name = {section.name: section for section in sections}
    symbols = list(_symbols(by_name[".symtab"].data, by_name[".strtab"].data)) if ".symtab" in by_name else []
    attributes = dict(_attributes(by_name[".nv.info"].data)) if ".nv.info" in by_name else {}
    system_smem = SYSTEM_SMEM_BYTES if int(architecture(image)[3:]) >= 90 else 0
    kernels: dict[str, CubinKernel] = {}
    for index, (name, is_kernel) in enumerate(symbols):
        if not is_kernel:
            continue
        text = by_name[f".text.{name}"]
        shared = by_name.get(f".nv.shared.{name}")
        kernels[name] = CubinKernel(
            name,
            # Before sm_90 the count also stands in the top byte of the code section's info field.
            registers=attributes.get((_ATTRIBUTE_REGISTERS, index), text.info >> 24),
            stack_bytes=attributes.get((_ATTRIBUTE_STACK, index), 0),
            static_smem_bytes=max(0, shared.size - system_smem) if shared else 0,
        )
    return kernels


def _sections(image: bytes, offset: int, entry_size: int, count: int, names_index: int) -> list[_Section]:
    rows = [_SECTION.unpack_from(image, offset + index * entry_size) for index in range(count)]
    names = image[rows[names_index][4] :]
    no_bits = 8
    return [
        _Section(
            name=_text_at(names, row[0]),
            data=b"" if row[1] == no_bits else image[row[4] : row[4] + row[5]],
            size=row[5],
            info=row[7],
        )
        for row in rows
    ]


def _symbols(table: bytes, names: bytes) -> Iterator[tuple[str, bool]]:
    for name_at, info, other, section, _, _ in _SYMBOL.iter_unpack(table):
        is_kernel = info & 0xF == _SYMBOL_FUNCTION and bool(other & _KERNEL_BIT) and section != 0
        yield _text_at(names, name_at), is_kernel


def _attributes(data: bytes) -> Iterator[tuple[tuple[int, int], int]]:
    """((attribute, symbol index), value) for the items that give one number for one function."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _FORMAT_SIZED:
            if size == 8:
                symbol, value = struct.unpack_from("<II", data, at)
                yield (attribute, symbol), value
            at += size


def _text_at(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode(errors="replace")
