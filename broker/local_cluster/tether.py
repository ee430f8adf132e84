"""``python -m oncelog.broker.local_cluster.tether PARENT COMMAND…``: become the command, and be killed with the parent.

The parent of a cluster's processes may itself be killed, and then could stop nothing. The kernel does it: the wish to
be killed when the parent ends (``PR_SET_PDEATHSIG``) survives ``exec``. It is expressed here, in the new process, as
only there the check that the parent has not ended already can be made afterwards.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tethered(command: Sequence[str]) -> list[str]:
    """Return the command, tied to the process that calls this and starts it from its main thread."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
