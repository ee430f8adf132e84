"""What the kernel knows of a socket: what it still has to send, what is unread, and how far away the client is.

What it has to send may be megabytes if the client does not read.
"""

import fcntl
import os
import socket
import struct
import sys
import termios
from typing import Final

from oncelog.broker.dispatch.request import NO_SOCKET

_INT: Final = struct.Struct("i")
_ROUND_TRIP: Final = struct.Struct("=68xI")
"""``tcpi_rtt`` of ``struct tcp_info``, in microseconds."""


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


def round_trip_seconds(descriptor: int) -> float:
    """Return the time to the client and back, as smoothed by the kernel; 0 where the system cannot return it.

    Linux: ``TCP_INFO`` of tcp(7).
    """
    if descriptor == NO_SOCKET or sys.platform != "linux":
        return 0.0
    try:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            info = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP.size)
        microseconds: int = _ROUND_TRIP.unpack(info)[0]
    except (OSError, struct.error):  # It was closed meanwhile, or is no TCP socket.
        return 0.0
    return microseconds / 1e6


def _queue_size(descriptor: int, request: int) -> int:
    if descriptor == NO_SOCKET or sys.platform != "linux":
        return 0
    try:
        size: int = _INT.unpack(fcntl.ioctl(descriptor, request, bytes(_INT.size)))[0]
    except OSError:  # It was closed meanwhile.
        return 0
    return size
