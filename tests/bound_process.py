"""Processes that end with the test process that started them, however that ends: SIGKILL included.

A process of its own, the reaper, has a pipe from the test process. When the pipe ends, because the test process has
ended, the reaper kills what is still alive. It has a session of its own, so that what is sent to the group of the test
process leaves it alone. A started process begins its command only once the reaper watches it.

``PR_SET_PDEATHSIG`` would not do: it kills a process when the *thread* ends that started it, and tests start brokers
from threads of an executor.
"""

import atexit
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

_WAIT_THEN_RUN: Final = 'read -r go && exec "$@" </dev/null'


def start_bound(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a command, without input, that ends with this process. ``options`` are those of ``Popen``."""
    process = subprocess.Popen(["sh", "-c", _WAIT_THEN_RUN, "sh", *command], stdin=subprocess.PIPE, **options)
    assert process.stdin is not None
    _reaper().watch(process.pid)
    with suppress(BrokenPipeError):  # It was killed at once.
        os.write(process.stdin.fileno(), b"\n")
    process.stdin.close()
    process.stdin = None
    return process


class _Reaper:
    """The test process's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, start_new_session=True)
        atexit.register(self._end)

    def watch(self, pid: int) -> None:
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), b"%d\n" % pid)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@cache
def _reaper() -> _Reaper:
    return _Reaper()


def _watch_and_kill() -> None:
    """Be the reaper: a line of standard input is a process to kill when the input ends."""
    alive: list[int] = []
    for line in sys.stdin.buffer:
        with suppress(ProcessLookupError):
            alive.append(os.pidfd_open(int(line)))
        alive = _still_alive(alive)
    for process in alive:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)


def _still_alive(processes: list[int]) -> list[int]:
    """Return those that have not ended; close the others."""
    poll = select.poll()
    for process in processes:
        poll.register(process, select.POLLIN)
    ended = {process for process, _ in poll.poll(0)}
    for process in ended:
        os.close(process)
    return [process for process in processes if process not in ended]


if __name__ == "__main__":
    _watch_and_kill()
