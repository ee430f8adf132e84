"""Which errors responses carry, by API: Kafka's RequestMetrics ErrorsPerSec, without the successes.

Where a response has error codes follows from its declaration: every ``error_code`` field of the message and of what it
holds. The walk is made once for each class; then each response costs a look at those fields. It is done only while
the metrics endpoint is open.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import Kind, Message, MessageType

_FENCES: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FOR_COORDINATORS: Final = "WriteTxnMarkers"
"""The API in whose responses such an error is about a duplicate marker."""

_Note: TypeAlias = Callable[[str, Message], None]


class ResponseErrors:
    """Counts error codes in the responses of one broker."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        """By (API name, error code)."""
        self._walks: dict[type[Message], _Note | None] = {}

    @property
    def zombie_fences(self) -> int:
        """Errors in responses to producers that another producer has replaced."""
        return sum(count for (api, code), count in self.counts.items() if code in _FENCES and api != _FOR_COORDINATORS)

    def note(self, api: str, response: Message) -> None:
        """Count every error in one response."""
        cls = type(response)
        if cls not in self._walks:
            self._walks[cls] = self._walk_of(cls)
        walk = self._walks[cls]
        if walk is not None:
            walk(api, response)

    def _walk_of(self, cls: MessageType) -> _Note | None:
        """Return a function that notes the errors of an instance; None if it never has any."""
        codes = [field.name for field in cls.fields if field.kind is Kind.INT16 and field.name.endswith("error_code")]
        structs = {field.name: field.struct for field in cls.fields if field.struct is not None}
        arrays = {field.name: field.element.struct for field in cls.fields if field.element and field.element.struct}
        inner = [(name, walk) for name, struct in structs.items() if (walk := self._walk_of(struct))]
        lists = [(name, walk) for name, struct in arrays.items() if (walk := self._walk_of(struct))]
        if not codes and not inner and not lists:
            return None

        def note(api: str, message: Message) -> None:
            for name in codes:
                code = getattr(message, name)
                if code:
                    self.counts[api, code] += 1
            for name, walk in inner:
                part = getattr(message, name)
                if part is not None:
                    walk(api, part)
            for name, walk in lists:
                for part in getattr(message, name) or ():
                    walk(api, part)

        return note
