"""The memory of the process that malloc manages: buffers of requests and responses, which come and go.

What is freed is kept for the next request, as returning each buffer to the kernel costs more than reading into it. But
what one burst has taken would then stay for ever, up to some ten megabytes. So all that is free is given back at an
interval, which costs some milliseconds when there is much of it, and nothing when there is not.
"""

import ctypes
from typing import Any, Final

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP_FREE_BYTES: Final = 32 << 20
_KEEP_BUFFERS_BELOW: Final = 4 << 20
GIVE_BACK_SECONDS: Final = 5.0


class Heap:
    """The heap of glibc; where there is another C library, nothing is done."""

    def __init__(self) -> None:
        libc: Any = ctypes.CDLL(None)
        self._libc = libc if hasattr(libc, "malloc_trim") else None

    def keep_buffers(self) -> None:
        """Keep buffers of some megabytes for others when they are freed, until memory is given back."""
        if self._libc is not None:
            self._libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BUFFERS_BELOW)
            self._libc.mallopt(_M_TRIM_THRESHOLD, _KEEP_FREE_BYTES)

    async def give_back(self) -> None:
        """Return what is free to the kernel."""
        if self._libc is not None:
            self._libc.malloc_trim(0)
