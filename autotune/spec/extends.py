"""A spec that takes over another one: `extends: NAME`, and what it says itself.

Sections that are mappings are merged entry by entry, `problem.classes` among them; an entry of the same name is
replaced as a whole, and so is everything that is a list or a single value. An entry keeps its place, new ones follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune import paths
from autotune.errors import InputError
from autotune.spec.yaml_file import YamlFile, read_yaml, shortened

KEY = "extends"


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
    return replace(file, data={**base.data, **merged}, base=base)


def _section(key: str, base: object, own: object) -> object:
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    if key == "problem" and isinstance(base.get("classes"), dict) and isinstance(own.get("classes"), dict):
        own = {**own, "classes": {**base["classes"], **own["classes"]}}
    return {**base, **own}
