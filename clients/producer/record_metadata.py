"""Where a record has been put."""

from typing import Final, NamedTuple

NO_OFFSET: Final = -1


class RecordMetadata(NamedTuple):
    """Where a record is.

    ``offset`` is -1 if the broker does not tell: with ``acks=0``, or when it recognised an old duplicate.
    ``timestamp_ms`` is the record's own, or the broker's for topics with LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
