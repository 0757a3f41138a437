"""`python -m autotune` is the same as `autotune`."""

from autotune.cli import main

if __name__ == "__main__":
    main()
