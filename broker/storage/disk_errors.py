"""Transient errors of the operating system: disk space or file descriptors have run out, and nothing is broken.

An operation that fails with one of them has changed nothing and can be retried. Every other ``OSError`` of a log or of
its directory means that the bytes on the disk cannot be relied on.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_space(error: OSError) -> bool:
    return error.errno in OUT_OF_SPACE


def is_transient(error: OSError) -> bool:
    """Return whether the same call may succeed later on an intact disk."""
    return error.errno in OUT_OF_SPACE or error.errno in OUT_OF_DESCRIPTORS


@contextmanager
def failing_unless_transient(mark_failed: Callable[[OSError], None]) -> Iterator[None]:
    """Raise a transient ``OSError`` of the block; pass any other one to ``mark_failed``."""
    try:
        yield
    except OSError as error:
        if is_transient(error):
            raise
        mark_failed(error)
