"""What an audit log says of a request that changes something: who, from where, what, and what became of it.

The request is written as it was decoded, without secrets: binary fields (salts, salted passwords) and the values of
settings that are passwords, or that no table knows, are left out. A long one has several lines if it has changed
something, and is cut if everything in it was refused: that costs its sender nothing.

A delegation token is renewed and ended by its secret: a digest of it stands in its place, and in the line of the
token's creation beside its id.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.settings import Kind
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from oncelog.broker.dispatch.request import RequestContext
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.schema import Buffer, Message

AUDITED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""The APIs that change something for others than their client."""
_LINE_CHARACTERS: Final = 8_192
"""Of a request in one line."""
_MOST_CHARACTERS: Final = 1 << 19
"""Of a request that has changed something: what is beyond is counted."""
_LONGEST_VALUE: Final = 1_024
_HIDDEN: Final = "(hidden)"
_VALUES: Final = ("value", "config_value")
_KEYS: Final = ("name", "config_name")
_MOST_CODES: Final = 50_000
"""Of a response that are looked at: more results than a request may have."""
_SECRET_OF_TOKEN: Final = "hmac"
_DIGEST_CHARACTERS: Final = 16


_IN_DOUBT: Final = frozenset({ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR})


def describe_change(
    context: RequestContext, name: str, request: Message, outcome: Message | ErrorCode
) -> list[dict[str, Any]]:
    """Return the fields of one line, or of several if the request is long and may have changed something.

    ``outcome``: the response, or why there is none.
    """
    connection = context.connection
    codes = islice(_error_codes(outcome), _MOST_CODES) if isinstance(outcome, Message) else (outcome,)
    errors = {error_of(code) for code in codes}
    written = _WrittenRequest(_LINE_CHARACTERS if errors.isdisjoint(_IN_DOUBT) else _MOST_CHARACTERS)
    text = json.dumps(written.plain(request), ensure_ascii=True, separators=(",", ":"))
    token = getattr(outcome, "token_id", "")
    fields = {
        "principal": str(connection.principal),
        "host": connection.client_host,
        "listener": connection.listener_name,
        "client_id": context.client_id,
        "api": name,
        **({"token": f"{token} {_digest(getattr(outcome, _SECRET_OF_TOKEN))}"} if token else {}),
        "errors": sorted(error.name for error in errors if error),
        **({"left_out": written.left_out} if written.left_out else {}),
    }
    parts = [text[first : first + _LINE_CHARACTERS] for first in range(0, len(text), _LINE_CHARACTERS)]
    if len(parts) == 1:
        return [fields | {"request": text}]
    return [fields | {"request": part, "part": f"{number} of {len(parts)}"} for number, part in enumerate(parts, 1)]


class _WrittenRequest:
    """What JSON can have of a request, with so many characters about; the time that it takes is bounded by them."""

    def __init__(self, characters: int) -> None:
        self._left = characters
        self.left_out = 0
        """Values that are not written."""

    def plain(self, value: Any) -> Any:
        if isinstance(value, Message):
            return self._plain_message(value)
        if isinstance(value, list | tuple):
            return self._plain_list(value)
        if isinstance(value, bytes | bytearray | memoryview):
            value = f"({len(value)} bytes)"
        if not isinstance(value, str | int | float | bool | None):
            value = str(value)
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            value = f"{value[:_LONGEST_VALUE]}… ({len(value)} characters)"
        self._left -= len(value) + 3 if isinstance(value, str) else 8
        return value

    def _plain_message(self, value: Message) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for field in type(value).fields:
            self._left -= len(field.name)
            fields[field.name] = self.plain(getattr(value, field.name))
        if fields.get(_SECRET_OF_TOKEN) is not None:
            fields[_SECRET_OF_TOKEN] = _digest(getattr(value, _SECRET_OF_TOKEN))
        key = next((getattr(value, each) for each in _KEYS if each in fields), None)
        for each in _VALUES:
            if fields.get(each) is not None and isinstance(key, str) and _is_secret(key):
                fields[each] = _HIDDEN
        return fields

    def _plain_list(self, values: Sequence[Any]) -> list[Any]:
        written = []
        for value in values:
            if self._left <= 0:
                break
            written.append(self.plain(value))
        self.left_out += len(values) - len(written)
        return written


def _digest(secret: Buffer) -> str:
    """Return by what the secret of a token is known again, and not found out."""
    return f"(sha256 {hashlib.sha256(secret).hexdigest()[:_DIGEST_CHARACTERS]})"


def _is_secret(key: str) -> bool:
    setting = BROKER_SETTINGS.get(key) or TOPIC_SETTINGS.get(key)
    return setting is None or setting.kind is Kind.PASSWORD


def _error_codes(message: Message) -> Iterator[int]:
    for field in type(message).fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and isinstance(value, int):
            yield value
        elif isinstance(value, Message):
            yield from _error_codes(value)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for each in value:
                yield from _error_codes(each)
