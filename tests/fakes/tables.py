"""Recorded tables made up for tests, and the cache files of Kernel Tuner that would hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotune.replay.kernel_tuner import table_of_cache
from autotune.replay.table import Table

PARAMETERS = {"bx": [16, 32, 64, 128], "by": [1, 2, 4, 8], "tile": [1, 2, 3], "pad": [0, 1]}


def legal(config: Mapping[str, int]) -> bool:
    return config["bx"] * config["by"] <= 512 and not (config["pad"] and config["tile"] == 3)


def time_of(config: Mapping[str, int]) -> float | str:
    """A valley with one optimum, bx=64, by=4, tile=2, pad=1; the largest blocks fail in two ways."""
    if config["bx"] * config["by"] == 512:
        return "CompilationFailedConfig" if config["bx"] == 128 else "RuntimeFailedConfig"
    off = abs(math.log2(config["bx"] / 64)) + abs(math.log2(config["by"] / 4)) + abs(config["tile"] - 2)
    return 1.0 + 0.25 * off + 0.1 * (1 - config["pad"])


def cache_text(
    parameters: Mapping[str, Sequence[int]] = PARAMETERS,
    time_of: Callable[[Mapping[str, int]], float | str] = time_of,
    legal: Callable[[Mapping[str, int]], bool] = legal,
    device: str = "NVIDIA RTX A6000",
) -> str:
    """As Kernel Tuner writes it: a line per configuration."""
    configs: list[dict[str, int]] = [{}]
    for name, values in parameters.items():
        configs = [{**config, name: value} for config in configs for value in values]
    cache = {}
    for config in filter(legal, configs):
        time = time_of(config)
        entry: dict[str, object] = {**config, "time": time}
        if isinstance(time, float):
            entry["times"] = [time * share for share in (0.9, 1.0, 1.0, 1.02, 1.08)]
        cache[",".join(map(str, config.values()))] = entry
    body = {
        "device_name": device,
        "kernel_name": "made_up",
        "problem_size": [64, 64],
        "tune_params_keys": list(parameters),
        "tune_params": {name: list(values) for name, values in parameters.items()},
        "objective": "time",
    }
    head = json.dumps(body)[:-1]
    rows = ",\n".join(f'"{key}": {json.dumps(entry)}' for key, entry in cache.items())
    return f'{head}, "cache": {{\n{rows}}}\n}}'


def made_up_table() -> Table:
    return table_of_cache(cache_text(), "made_up")


def write_cache(folder: Path, name: str = "made_up.json") -> Path:
    path = folder / name
    path.write_text(cache_text())
    return path
