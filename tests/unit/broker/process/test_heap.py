"""Memory that is freed goes back to the kernel after a while, also what lies between blocks that are in use."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[4]
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
BURST: Final = """
import asyncio
from pathlib import Path
from oncelog.broker.process.heap import Heap

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])

heap = Heap()
heap.keep_buffers()
found = [resident()]
buffers, kept = [], []
for _ in range(60):
    buffers.append(bytearray(b"x" * (1 << 20)))
    kept.append(bytearray(1 << 12))
del buffers
found.append(resident())
asyncio.run(heap.give_back())
found.append(resident())
print(*found)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's heap is managed")
def test_burst_of_buffers_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", BURST], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    before, freed, after = (int(pages) * PAGE >> 20 for pages in done.stdout.split())
    assert freed - before >= 20, "malloc keeps what is freed"
    assert after - before <= 10
