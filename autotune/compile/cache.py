"""Compiled kernels on disk, by the hash of all that went into them.

    <folder>/<2 digits>/<key>/kernel.cubin  kernel.cu  meta.json  compile.log

Any number of processes may share a folder: an entry is written aside and appears by one rename, complete
or not at all. Only successes are kept. An entry that does not match its checksum counts as absent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.candidate import CompiledKernel
from autotune.errors import InputError
from autotune.records import Resources

LAYOUT = 1
"""Part of each key: raised when the layout or the meaning of an entry changes."""
DEFAULT_LIMIT_BYTES = 4 << 30
IN_USE_S = 3600.0
"""Entries used within this time are never pruned: a running study may be about to load them."""
_TEMPORARY = "tmp"


@dataclass(frozen=True)
class Artifact:
    """What a compilation left, on its way to disk."""

    image: bytes
    source: str
    log: str
    entry: str
    arch: str
    resources: Resources
    compiler: str
    compile_s: float


@dataclass(frozen=True)
class Pruned:
    """What `Cache.prune` removed and what is left."""

    removed: int
    removed_bytes: int
    left: int
    left_bytes: int


def key_of(parts: Mapping[str, object]) -> str:
    """The hash under which equal inputs meet; values are text, numbers, or sequences and mappings of them."""
    text = json.dumps({"layout": LAYOUT, **parts}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class Cache:
    """One folder of compiled kernels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> CompiledKernel | None:
        """The kernel of this key; None where it is absent or damaged."""
        entry = self._entry(key)
        try:
            meta = json.loads((entry / "meta.json").read_text())
            image = (entry / "kernel.cubin").read_bytes()
            if hashlib.sha256(image).hexdigest() != meta["image_sha256"]:
                return None
            kernel = CompiledKernel(
                key=key,
                image=entry / "kernel.cubin",
                entry=meta["entry"],
                arch=meta["arch"],
                resources=Resources(**meta["resources"]),
                compiler=meta["compiler"],
                compile_s=meta["compile_s"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        with contextlib.suppress(OSError):  # a read-only cache still answers
            os.utime(entry)
        return kernel

    def store(self, key: str, artifact: Artifact) -> CompiledKernel:
        """Keeps a kernel and gives what is now stored, which is another process's copy if that came first.

        Raises InputError where the folder cannot be written.
        """
        entry = self._entry(key)
        try:
            aside = self._aside()
            try:
                _write(aside, artifact)
                entry.parent.mkdir(parents=True, exist_ok=True)
                kernel = self._put(aside, key)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise InputError(
                f"compiled kernels cannot be kept in {self.folder}: {error.strerror or error}",
                where="cache",
                nearest="free some space, or set AUTOTUNE_CACHE to a folder that can be written",
            ) from error
        return kernel

    def prune(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Pruned:
        """Removes the entries unused for longest until the rest fits; those in use just now stay."""
        now = time.time()
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        removed = removed_bytes = 0
        for used, size, path in entries:
            if total - removed_bytes <= limit_bytes or used > now - IN_USE_S:
                break
            self._discard(path)
            removed += 1
            removed_bytes += size
        for leftover in self._children(self.folder / _TEMPORARY):
            with contextlib.suppress(OSError):  # of processes that were killed while writing
                if leftover.is_dir() and leftover.stat().st_mtime < now - IN_USE_S:
                    shutil.rmtree(leftover, ignore_errors=True)
        return Pruned(removed, removed_bytes, len(entries) - removed, total - removed_bytes)

    def _put(self, aside: Path, key: str) -> CompiledKernel:
        """Moves a finished entry to its place, unless a sound one stands there already."""
        entry = self._entry(key)
        with contextlib.suppress(OSError):  # there is one already: a folder with files is not replaced
            aside.rename(entry)
        if kernel := self.find(key):
            return kernel
        # One at a time, lest a second process that saw the damage takes away what the first just put there.
        with (self.folder / _TEMPORARY / "replacing").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kernel = self.find(key)
            if kernel is None:
                self._discard(entry)
                try:
                    aside.rename(entry)
                except OSError:
                    # A third process, which saw no damage, may have put its copy there just now.
                    if not entry.is_dir():
                        raise
                kernel = self.find(key)
        if kernel is None:
            raise OSError(f"{entry} does not read back as written")
        return kernel

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _aside(self) -> Path:
        path = self.folder / _TEMPORARY / uuid.uuid4().hex
        path.mkdir(parents=True)
        return path

    def _discard(self, entry: Path) -> None:
        """Takes an entry away in one step, then deletes it: nobody sees half of it."""
        (self.folder / _TEMPORARY).mkdir(exist_ok=True)
        away = self.folder / _TEMPORARY / uuid.uuid4().hex
        with contextlib.suppress(OSError):  # another process was quicker
            entry.rename(away)
        shutil.rmtree(away, ignore_errors=True)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """(last use, bytes, folder) of every entry."""
        for shelf in self._children(self.folder):
            if shelf.name == _TEMPORARY:
                continue
            for entry in self._children(shelf):
                with contextlib.suppress(OSError):
                    yield entry.stat().st_mtime, sum(file.stat().st_size for file in entry.iterdir()), entry

    @staticmethod
    def _children(folder: Path) -> list[Path]:
        return list(folder.iterdir()) if folder.is_dir() else []


def _write(folder: Path, artifact: Artifact) -> None:
    (folder / "kernel.cubin").write_bytes(artifact.image)
    (folder / "kernel.cu").write_text(artifact.source)
    (folder / "compile.log").write_text(artifact.log + "\n")
    meta = {
        "entry": artifact.entry,
        "arch": artifact.arch,
        "resources": asdict(artifact.resources),
        "compiler": artifact.compiler,
        "compile_s": artifact.compile_s,
        "image_sha256": hashlib.sha256(artifact.image).hexdigest(),
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
