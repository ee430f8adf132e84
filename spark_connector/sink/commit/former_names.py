"""Which records a sink may take over: those of the same query or application under another name of its sink. Pure.

Former releases named a stream's sink after the text of ``checkpointLocation``, and a batch's after
``transactionalIdPrefix`` alone, whatever its application and topic.
"""

import re
from dataclasses import dataclass
from typing import Final

from oncelog.spark_connector.sink.commit.state_record import StateRecord

_AFTER_CHECKPOINT: Final = re.compile(r"[0-9a-f]{16}")
"""Names that former releases made from a checkpoint's location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerNames:
    """The names under which a sink may have written before; ``query`` is the query of its records."""

    query: str
    names: tuple[str, ...]
    was_named_by_location: bool
    """Whether any other name that was made from a checkpoint's location is possible, too."""

    def includes(self, state: StateRecord) -> bool:
        """Return whether a record is of this query under a former name; one without a batch has no query yet."""
        if state.query == self.query:
            return state.sink in self.names or (
                self.was_named_by_location and _AFTER_CHECKPOINT.fullmatch(state.sink) is not None
            )
        return self.was_named_by_location and state.sink in self.names and state.query == ""
