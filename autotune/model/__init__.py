"""The performance model: a closed form, and the same fitted to measurements with a learnt correction."""

from autotune.model.closed_form import (
    COST_KEYS,
    REGISTERS_WHERE_UNKNOWN,
    check_cost,
    config_columns,
    predict_ms,
    rank,
    sustained_clock_mhz,
)
from autotune.model.constants import DRAM_SHARE, L2_BYTES_PER_CYCLE_PER_SM, LAUNCH_MS, Constants

__all__ = [
    "COST_KEYS",
    "DRAM_SHARE",
    "L2_BYTES_PER_CYCLE_PER_SM",
    "LAUNCH_MS",
    "REGISTERS_WHERE_UNKNOWN",
    "Constants",
    "check_cost",
    "config_columns",
    "predict_ms",
    "rank",
    "sustained_clock_mhz",
]
