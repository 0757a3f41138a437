"""GPU cases about whole studies and what users do with their results."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import DATA, QUICK, Bench
from case import ROOT, NotChecked, Numbers

from autotune.problems import make_problem
from autotune.records import Status


def load_case(bench: Bench, numbers: Numbers) -> None:
    """`autotune.load` on arrays of CuPy and PyTorch: packed, views of larger arrays, alpha, beta, odd sizes."""
    import cupy

    import autotune

    with tempfile.TemporaryDirectory() as folder:
        sgemm = autotune.load("sgemm", db=Path(folder) / "empty.sqlite")
        generator = cupy.random.default_rng(3)

        def normal(rows: int, columns: int) -> Any:
            return generator.standard_normal((rows, columns), dtype=cupy.float32)

        worst = 0.0
        for m, n, k in ((256, 512, 128), (129, 257, 65), (1, 1, 7), (33, 5, 0)):
            a, b = normal(m, k + 3)[:, 1 : k + 1], normal(k + 1, n)[:k]
            c = normal(m, n + 5)[:, 2 : n + 2]
            plain = sgemm(a, b)
            expected = a.astype(cupy.float64) @ b.astype(cupy.float64)
            worst = max(worst, float(cupy.abs(plain - expected).max()))
            wanted = 2.0 * expected + 0.5 * c
            assert sgemm(a, b, out=c, alpha=2.0, beta=0.5) is c
            worst = max(worst, float(cupy.abs(c - wanted).max()))
        numbers["worst error"] = worst
        assert worst < 1e-3
        try:
            import torch
        except ImportError:
            raise NotChecked("PyTorch arrays: PyTorch is not here") from None
        left, right = torch.randn(300, 200, device="cuda"), torch.randn(200, 100, device="cuda")
        product = sgemm(left, right)
        numbers["torch"] = float((product.double() - left.double() @ right.double()).abs().max())
        assert isinstance(product, torch.Tensor)
        assert numbers["torch"] < 1e-3  # type: ignore[operator]


def trouble(bench: Bench, numbers: Numbers) -> None:
    """20 trials, four of them trouble; killed in the middle, then resumed."""
    from autotune.store import RecordQuery, open_store

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "trouble.sqlite"
        command = [sys.executable, __file__, str(database)]
        search_path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        environment = {**os.environ, "PYTHONPATH": search_path}
        child = subprocess.Popen(command, cwd=ROOT, env=environment)
        deadline = time.monotonic() + 60
        while stored(database) < 7 and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        at_kill = stored(database)
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=100, check=False)
        with open_store(database) as store:
            records = [record for record in store.records(RecordQuery()) if record.round == "search"]
        numbers["stored when killed"] = at_kill
        by_config = Counter(record.config.key for record in records)
        reasons = {
            r.config["VARIANT"]: f"{r.outcome.status}: {r.outcome.reason}"
            for r in records
            if r.outcome.reason
        }
        numbers["failures"] = reasons
        timed = [record for record in records if record.outcome.status.timed]
        numbers["timed"] = len(timed)
        assert done.returncode == 0
        assert at_kill >= 7
        assert len(by_config) == 20
        assert max(by_config.values()) == 1
        assert len(timed) == 16
        assert all(record.outcome.accuracy is not None for record in timed)
        statuses = {r.config["VARIANT"]: r.outcome.status for r in records if not r.outcome.status.timed}
        assert statuses == {
            3: Status.TIMEOUT,
            8: Status.CRASHED,
            12: Status.WRONG_RESULT,
            16: Status.LAUNCH_ERROR,
        }, statuses


def stored(database: Path) -> int:
    import sqlite3

    if not database.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute("select count(*) from autotune_trials").fetchone()[0])
    except sqlite3.Error:
        return 0


def trouble_study(database: Path) -> None:
    """The study itself, for the process that gets killed."""
    from autotune.spec.load import load_spec
    from autotune.store import open_store
    from autotune.study.request import StudyRequest
    from autotune.study.study import run_study

    with Bench.open() as bench, open_store(database) as store:
        spec = load_spec("trouble", [DATA])
        bench.stages.protocol = dataclasses.replace(QUICK, run_limit_s=3.0)
        request = StudyRequest(
            spec=spec,
            gpu=bench.gpu.spec,
            problem=make_problem(spec, 2**20),
            device=bench.gpu.identity,
            environment=bench.gpu.environment,
            study="trouble",
            protocol=bench.stages.protocol,
            strategy="exhaustive",
            board=bench.gpu.uuid,
        )
        run_study(request, bench.stages, store)


if __name__ == "__main__":
    trouble_study(Path(sys.argv[1]))
