"""About how many bytes of memory the parts of a group take, so that they can be bounded (``memory``)."""

import sys
from collections.abc import Iterable
from typing import Final

GROUP_BYTES: Final = 2_048
"""A group with members, before its members."""
MEMBER_BYTES: Final = 2_048
"""A member, with the request that is parked for it, before what it offers."""
PENDING_BYTES: Final = 1_024
"""A member id that has not come back yet."""
_PROTOCOL_BYTES: Final = 128


def size_of_protocols(protocols: Iterable[tuple[str, bytes]]) -> int:
    """Return what the (name, metadata) pairs of one member take."""
    getsizeof = sys.getsizeof
    return sum(_PROTOCOL_BYTES + getsizeof(name) + getsizeof(metadata) for name, metadata in protocols)
