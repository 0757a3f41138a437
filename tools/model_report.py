"""Records how good the performance model is on the exhaustive table of the H200: studies/h200/model.json.

    python tools/model_report.py

It is what `autotune model --json` says of the table, and the commit that said it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "studies" / "h200" / "sgemm" / "tables" / "exhaustive.jsonl.gz"
REPORT = ROOT / "studies" / "h200" / "model.json"
PROGRAM = ("autotune/model", "autotune/cli/model.py", "configs", "templates")
"""What the figures depend on besides the table."""


def main() -> None:
    """Runs the command and writes the file; refuses where the program is not as committed."""
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *PROGRAM], cwd=ROOT, check=False).returncode:
        sys.exit("the model or the kernel differs from the last commit: commit it first")
    commit = _output("git", "rev-parse", "--short", "HEAD").strip()
    command = [sys.executable, "-m", "autotune", "model", "--gpu", "h200", "--study", str(TABLE), "--json"]
    report = json.loads(_output(*command))
    report["provenance"]["commit"] = commit
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
