"""A spec that takes over another one: `extends: NAME`, and what it says itself.

Sections that are mappings are merged entry by entry, `problem.classes` among them; an entry of the same name is
replaced as a whole, and so is everything that is a list or a single value. An entry keeps its place, new ones follow.
A list whose first item is `"..."` continues the other one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune import paths
from autotune.errors import InputError
from autotune.spec.yaml_file import Key, YamlFile, read_yaml, shortened

KEY = "extends"
CONTINUED = "..."


def read_extended(path: Path, folders: Sequence[Path] = (), below: Sequence[Path] = ()) -> YamlFile:
    """The file's content merged over that of the kernel it extends, if any; each value keeps its file and line.

    Raises InputError where there is no such kernel or where it extends this one; `below` are the files on the way.
    """
    file = read_yaml(path)
    if not isinstance(file.data, dict) or KEY not in file.data:
        return file
    name = file.data[KEY]
    if not isinstance(name, str) or not name:
        raise file.error((KEY,), f"must be the name of a kernel, got {shortened(name)}")
    try:
        other = paths.find("configs", f"kernels/{name}.yaml", folders)
    except InputError as error:
        raise file.error((KEY,), error.rule, error.nearest) from None
    if other.resolve() in [each.resolve() for each in (*below, path)]:
        raise file.error((KEY,), f"a kernel must not extend itself, got {name!r}")
    base = read_extended(other, folders, (*below, path))
    if not isinstance(base.data, dict):
        return base
    own = {key: value for key, value in file.data.items() if key != KEY}
    merged = {key: _section(key, base.data.get(key), value) for key, value in own.items()}
    # Items behind those of the other list have moved.
    moved = {key: len(base.data[key]) - 1 for key in own if _continues(base.data.get(key), own[key])}
    lines = {_moved(key, moved): line for key, line in file.lines.items() if not _is_mark(key, moved)}
    return replace(file, data={**base.data, **merged}, lines=lines, base=base)


def _continues(base: object, own: object) -> bool:
    return isinstance(base, list) and isinstance(own, list) and own[:1] == [CONTINUED]


def _is_mark(key: Key, moved: Mapping[str, int]) -> bool:
    return len(key) > 1 and key[0] in moved and key[1] == 0


def _moved(key: Key, moved: Mapping[str, int]) -> Key:
    if len(key) > 1 and key[0] in moved and isinstance(key[1], int):
        return (key[0], key[1] + moved[str(key[0])], *key[2:])
    return key


def _section(key: str, base: object, own: object) -> object:
    if isinstance(base, list) and isinstance(own, list) and _continues(base, own):
        return [*base, *own[1:]]
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    if key == "problem" and isinstance(base.get("classes"), dict) and isinstance(own.get("classes"), dict):
        own = {**own, "classes": {**base["classes"], **own["classes"]}}
    return {**base, **own}
