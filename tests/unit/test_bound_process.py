"""Processes of tests end with the test process, however that ends."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.bound_process import start_bound
from tests.processes import LIMIT_SECONDS, REPOSITORY

_STARTER = """
import sys, threading
from tests.bound_process import start_bound

def start():
    print(start_bound([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)

start()
thread = threading.Thread(target=start)  # It ends at once, and its process stays.
thread.start()
thread.join()
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, None])
def test_started_processes_end_when_test_process_ends(how: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        started = [os.pidfd_open(int(starter.stdout.readline())) for _ in range(2)]
        try:
            assert not select.select(started, [], [], 0)[0]
            if how is not None:
                os.killpg(starter.pid, how)  # As ``make`` and a terminal do.
            starter.communicate(timeout=LIMIT_SECONDS)
            for process in started:
                assert select.select([process], [], [], LIMIT_SECONDS)[0], "it still runs"
        finally:
            for process in started:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)


def test_bound_process_gets_its_arguments_and_returns_its_output_and_exit_code() -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); sys.exit(3)"
    process = start_bound([sys.executable, "-c", code, "a b", "$c"], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert (output, process.returncode) == ("['a b', '$c'] \n", 3)
