"""What the kernel has of a socket: what it still has to send, megabytes if the client does not read; what is unread."""

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
    return _queue_size(descriptor, termios.TIOCOUTQ)


def unread_bytes(descriptor: int) -> int:
    """Return how many bytes have arrived at the socket and are not read; 0 where the system cannot return it.

    Linux: ``SIOCINQ`` of tcp(7), which has the number of ``FIONREAD``.
    """
    return _queue_size(descriptor, termios.FIONREAD)


def _queue_size(descriptor: int, request: int) -> int:
    if descriptor == NO_SOCKET or sys.platform != "linux":
        return 0
    try:
        size: int = _INT.unpack(fcntl.ioctl(descriptor, request, bytes(_INT.size)))[0]
    except OSError:  # It was closed meanwhile.
        return 0
    return size
