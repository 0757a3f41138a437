"""The GPU cases of `tools/gpu/case_list.py` as tests: `pytest -m gpu tests/gpu`."""

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools" / "gpu"
sys.path.insert(0, str(TOOLS))

from case_list import CASES, NotChecked  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="session")
def bench():
    from bench import Bench

    with Bench.open() as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(bench, case):
    from cases import time_limit

    numbers = {}
    try:
        with time_limit(case.limit_s):
            case.run(bench, numbers)
    except NotChecked as missing:
        pytest.skip(str(missing))
    print(case.id, numbers)
