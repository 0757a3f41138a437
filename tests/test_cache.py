"""The cache gives back exactly what was stored, or nothing; whatever processes and disks do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.compile.cache import IN_USE_S, Artifact, Cache, key_of
from autotune.errors import InputError
from autotune.records import Resources

RESOURCES = Resources(128, 1024, 16, 32, 48)
KEY = key_of({"source": "x"})


def artifact(image: bytes = b"\x7fELF code") -> Artifact:
    return Artifact(image, "__global__ void k() {}", "log", "k", "sm_86", RESOURCES, "nvrtc 13.5", 0.5)


def test_what_is_stored_is_found_with_its_source_and_log(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.find(KEY) is None
    stored = cache.store(KEY, artifact())
    assert cache.find(KEY) == stored
    assert (stored.resources, stored.entry, stored.arch, stored.compile_s) == (RESOURCES, "k", "sm_86", 0.5)
    assert stored.image.read_bytes() == b"\x7fELF code"
    assert stored.image.with_name("kernel.cu").read_text() == "__global__ void k() {}"
    assert stored.image.with_name("compile.log").read_text() == "log\n"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("change", [{"source": "y"}, {"source": "x", "arch": "sm_90"}, {"source": ["x"]}])
def test_other_inputs_have_another_key(change: dict[str, object]) -> None:
    assert key_of(change) != KEY
    assert key_of({"source": "x"}) == KEY


@pytest.mark.parametrize("file", ["kernel.cubin", "meta.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
def test_a_damaged_entry_is_absent_and_then_replaced(tmp_path: Path, file: str, damage: str) -> None:
    cache = Cache(tmp_path)
    path = cache.store(KEY, artifact()).image.with_name(file)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "cut": data[: len(data) // 2], "changed": data.replace(b"o", b"0")}[damage]
        )
    assert cache.find(KEY) is None
    assert cache.store(KEY, artifact()) == cache.find(KEY)


def test_the_first_of_two_stores_wins(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, artifact(b"first"))
    assert cache.store(KEY, artifact(b"second")).image.read_bytes() == b"first"


def test_processes_that_race_for_one_key_all_get_whole_entries(tmp_path: Path) -> None:
    program = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent)]!r}
from pathlib import Path
from autotune.compile.cache import Cache, key_of
from test_cache import artifact
cache = Cache(Path({str(tmp_path)!r}))
while time.time() < float(sys.argv[1]): pass
for number in range(20):
    key = key_of({{"number": number}})
    image = bytes([int(sys.argv[2])]) * 200_000
    found = cache.find(key)
    if found is not None and len(set(found.image.read_bytes())) != 1: sys.exit("half an entry was found")
    stored = cache.store(key, artifact(image)).image.read_bytes()
    if len(stored) != 200_000 or len(set(stored)) != 1: sys.exit("half an entry was stored")
"""
    for number in range(0, 20, 4):  # some entries are damaged from the start
        Cache(tmp_path).store(key_of({"number": number}), artifact()).image.write_bytes(b"damage")
    begin = str(time.time() + 0.5)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, begin, str(number)], stderr=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    for racer in racers:
        _, errors = racer.communicate(timeout=60)
        assert racer.returncode == 0, errors
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["replacing"]


def test_a_copy_that_comes_while_damage_is_replaced_is_taken(tmp_path: Path) -> None:
    """Met in a race of four processes: the third had not seen the damage and was quicker."""

    class Raced(Cache):
        def _discard(self, entry: Path) -> None:
            super()._discard(entry)
            Cache(tmp_path).store(key, artifact(b"third"))

    key = key_of({"number": 1})
    Cache(tmp_path).store(key, artifact(b"first")).image.write_bytes(b"damage")
    assert Raced(tmp_path).store(key, artifact(b"second")).image.read_bytes() == b"third"


def test_prune_removes_what_was_unused_longest_and_keeps_what_is_in_use(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = [key_of({"number": number}) for number in range(4)]
    long_ago = time.time() - 10 * IN_USE_S
    for age, key in enumerate(keys):
        entry = cache.store(key, artifact(b"x" * 10_000)).image.parent
        os.utime(entry, (long_ago + age, long_ago + age))
    cache.find(keys[0])  # used now
    pruned = cache.prune(limit_bytes=0)
    assert (pruned.removed, pruned.left) == (3, 1)
    assert cache.find(keys[0]) is not None
    assert all(cache.find(key) is None for key in keys[1:])
    assert cache.prune().removed == 0


def test_prune_clears_up_after_killed_processes(tmp_path: Path) -> None:
    leftover = tmp_path / "tmp" / "abc"
    leftover.mkdir(parents=True)
    os.utime(leftover, (0, 0))
    assert Cache(tmp_path).prune().removed == 0
    assert not leftover.exists()


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="AUTOTUNE_CACHE"):
        Cache(tmp_path / "file" / "cache").store(KEY, artifact())


def test_meta_is_plain_json(tmp_path: Path) -> None:
    meta = json.loads(Cache(tmp_path).store(KEY, artifact()).image.with_name("meta.json").read_text())
    assert meta["compiler"] == "nvrtc 13.5"
