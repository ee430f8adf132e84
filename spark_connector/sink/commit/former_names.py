"""Which records a sink may take over: those of the same query or application under another name of its sink. Pure.

Former releases named a stream's sink after the text of ``checkpointLocation``, and a batch's after
``transactionalIdPrefix`` alone, whatever its application and topic.
"""

import re
from dataclasses import dataclass
from typing import Final

from oncelog.spark_connector.sink.commit.state_record import StateRecord

_AFTER_CHECKPOINT: Final = re.compile(r"[0-9a-f]{16}")
"""Names that former releases made of a checkpoint's location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """Where a sink may have been before: ``query`` is that of its records."""

    query: str
    names: tuple[str, ...]
    was_named_by_location: bool
    """Also under names made of a location that nobody knows any more."""

    def may_be(self, state: StateRecord) -> bool:
        """Whether a record is of the same query under a former name; one without any batch has no query yet."""
        if state.query == self.query:
            return state.sink in self.names or (
                self.was_named_by_location and _AFTER_CHECKPOINT.fullmatch(state.sink) is not None
            )
        return self.was_named_by_location and state.sink in self.names and state.query == ""
