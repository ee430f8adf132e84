"""Errors of the operating system that pass: they say that something has run out, not that something is broken.

Whatever met such an error was not done, and can be done again when there is room. Every other ``OSError`` of a log or
of its directory means that what is on the disk cannot be relied on.
"""

import errno
from typing import Final

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_space(error: OSError) -> bool:
    return error.errno in OUT_OF_SPACE


def is_passing(error: OSError) -> bool:
    """Return whether the same call may succeed later on an intact disk."""
    return error.errno in OUT_OF_SPACE or error.errno in OUT_OF_DESCRIPTORS
