"""What the kernel still has to send for a socket: of a client that does not read, its buffers take megabytes."""

import fcntl
import struct
import sys
import termios
from typing import Final

from oncelog.broker.dispatch.request import NO_SOCKET

_INT: Final = struct.Struct("i")


def unacknowledged_bytes(descriptor: int) -> int:
    """Return how many bytes of the socket's send queue are not acknowledged; 0 where the system cannot return it.

    Linux: ``SIOCOUTQ`` of tcp(7), which has the number of ``TIOCOUTQ``.
    """
    if descriptor == NO_SOCKET or sys.platform != "linux":
        return 0
    try:
        size: int = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))[0]
    except OSError:  # It was closed meanwhile.
        return 0
    return size
