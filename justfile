# One command for everything: `just check` is what CI does.

# Install, then run the quick tests.
test *ARGS:
    bash tools/test {{ARGS}}

# The long ones too.
test-slow:
    bash tools/test -m "not gpu"

format:
    .venv/bin/ruff format .
    .venv/bin/ruff check --fix .

lint:
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy

check:
    bash .ci/run
