"""What an audit log says of a request that changes something: who, from where, what, and what became of it.

The request is written as it was decoded, without secrets: binary fields (salts, salted passwords) and the values of
settings that are passwords, or that no table knows, are left out. It is cut if it is long.

A delegation token is renewed and ended by its secret: a digest of it stands in its place, and in the line of the
token's creation beside its id.
"""

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.settings import Kind
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from oncelog.broker.dispatch.request import RequestContext
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import error_of
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
_LONGEST_TEXT: Final = 8_192
_HIDDEN: Final = "(hidden)"
_VALUES: Final = ("value", "config_value")
_KEYS: Final = ("name", "config_name")
_MOST_VALUES: Final = 1_000
"""Of a request that are written, and of a response that are looked at."""
_CUT: Final = "… (more than are written)"
_SECRET_OF_TOKEN: Final = "hmac"
_DIGEST_CHARACTERS: Final = 16


def describe_change(context: RequestContext, name: str, request: Message, response: Message) -> dict[str, Any]:
    """Return the fields of a line."""
    connection = context.connection
    text = json.dumps(_plain(request, [_MOST_VALUES]), ensure_ascii=True, separators=(",", ":"))
    token = getattr(response, "token_id", "")
    return {
        "principal": str(connection.principal),
        "host": connection.client_host,
        "listener": connection.listener_name,
        "client_id": context.client_id,
        "api": name,
        "request": text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)",
        **({"token": f"{token} {_digest(getattr(response, _SECRET_OF_TOKEN))}"} if token else {}),
        "errors": sorted({error_of(code).name for code in islice(_error_codes(response), _MOST_VALUES) if code}),
    }


def _plain(value: Any, left: list[int]) -> Any:
    """Return what JSON can have; ``left`` holds how many more values are written."""
    left[0] -= 1
    if left[0] < 0:
        return _CUT
    if isinstance(value, Message):
        fields = {field.name: _plain(getattr(value, field.name), left) for field in type(value).fields}
        if fields.get(_SECRET_OF_TOKEN) is not None:
            fields[_SECRET_OF_TOKEN] = _digest(getattr(value, _SECRET_OF_TOKEN))
        key = next((fields[each] for each in _KEYS if each in fields), None)
        for each in _VALUES:
            if fields.get(each) is not None and isinstance(key, str) and _is_secret(key):
                fields[each] = _HIDDEN
        return fields
    if isinstance(value, list | tuple):
        return [_plain(each, left) for each in value[: left[0] + 1]]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


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
