"""A child for `tests/test_child_process.py`: does what the message says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from autotune.child.serve import serve
from autotune.errors import InputError

ARGS: list[str] = []


def handle(message: object) -> object:
    assert isinstance(message, tuple)
    act, *rest = message
    if act == "echo":
        return rest[0]
    if act == "args":
        return ARGS
    if act == "print":
        print("loud " * rest[0])
        return "printed"
    if act == "sleep":
        time.sleep(rest[0])
    elif act == "signal":
        print("last words", flush=True)
        os.kill(os.getpid(), rest[0])
        time.sleep(60)
    elif act == "exit":
        os._exit(rest[0])
    elif act == "input error":
        raise InputError("is wrong", "here.yaml:1", "key", "that")
    elif act == "raise":
        raise ZeroDivisionError("boom")
    elif act == "unpicklable":
        return lambda: None
    elif act == "allocate":
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1) * (16 << 20)))
            time.sleep(0.05)  # slower than its watch looks, however loaded the machine is
    elif act == "children":
        # One child stays in the group, the other leaves it; both hang.
        near = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        far = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        return near.pid, far.pid
    elif act == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        time.sleep(600)
    return None


if __name__ == "__main__":
    serve(handle, ARGS.extend)
