"""What is looked at in the responses of ``acl_cells.txt``, and how it is written there."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.schema import ZERO_UUID, Message
from tests.conformance.acl_requests import NOWHERE, OPEN, G, T, U
from tests.conformance.acl_table import Cell

_CODES: Final = frozenset({"error_code", "partition_error_code"})


def error_codes(message: Message, version: int, skipped: Sequence[str] = ()) -> list[ErrorCode]:
    """Every error code of a response, in the order of its fields."""
    return list(_error_codes(message, version, skipped))


def _error_codes(message: Message, version: int, skipped: Sequence[str]) -> Iterator[ErrorCode]:
    for field in type(message).fields:
        if version not in field.versions or field.name in skipped:
            continue
        value = getattr(message, field.name)
        if field.name in _CODES:
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _error_codes(each, version, skipped)


def described(cell: Cell, response: Any, token_id: str) -> str:
    """A response in the words of the table. ``token_id``: the token that is looked for in it."""
    skipped = ["topics"] if cell.request.endswith("-all") else []
    codes = error_codes(response, cell.version, skipped)
    if cell.request.startswith("describe-tokens"):
        looked_at = _look_at_tokens(response, token_id)
    else:
        looked_at = _LOOKS.get(cell.request, _look_at_nothing)(response)
    parts = [" ".join(code.name for code in codes) or "-"]
    parts += [f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in looked_at.items()]
    return " ".join(parts)


def _look_at_tokens(response: Any, token_id: str) -> dict[str, Any]:
    return {"owners": [token.principal_name for token in response.tokens if token.token_id == token_id]}


def _look_at_nothing(response: Any) -> dict[str, Any]:
    return {}


def _look_at_topics(response: Any) -> dict[str, Any]:
    shown = [
        [topic.name, topic.topic_id != ZERO_UUID, topic.topic_authorized_operations]
        for topic in response.topics
        if topic.name in (None, T, U, NOWHERE)
    ]
    return {"topics": sorted(shown, key=str)}


def _look_at_topic_names(response: Any) -> dict[str, Any]:
    return {"topics": sorted(topic.name for topic in response.topics if topic.name in (T, U))}


def _look_at_cluster_bits(response: Any) -> dict[str, Any]:
    return {"bits": response.cluster_authorized_operations}


def _look_at_group_bits(response: Any) -> dict[str, Any]:
    return {"bits": response.groups[0].authorized_operations}


def _look_at_offsets(response: Any) -> dict[str, Any]:
    topics = response.groups[0].topics
    return {"offsets": sorted([t.name or "by id", [p.committed_offset for p in t.partitions]] for t in topics)}


def _look_at_created(response: Any) -> dict[str, Any]:
    (topic,) = response.topics
    return {
        "config_error": ErrorCode(topic.topic_config_error_code).name,
        "configs": "some" if topic.configs else "none",
        "partitions": topic.num_partitions,
    }


def _look_at_deleted(response: Any) -> dict[str, Any]:
    (topic,) = response.responses
    return {"name": topic.name, "has_id": topic.topic_id != ZERO_UUID}


_LOOKS: Final = {
    "metadata-name": _look_at_topics,
    "metadata-id": _look_at_topics,
    "metadata-all": _look_at_topics,
    "metadata-unknown-name": _look_at_topics,
    "precedence-describe": _look_at_topics,
    "describe-topic-partitions": _look_at_topics,
    "describe-topic-partitions-all": _look_at_topic_names,
    "metadata-cluster-ops-v10": _look_at_cluster_bits,
    "describe-cluster": _look_at_cluster_bits,
    "describe-groups": _look_at_group_bits,
    "offset-fetch-id": _look_at_offsets,
    "offset-fetch-name": _look_at_offsets,
    "offset-fetch-all": _look_at_offsets,
    "list-groups-by-group": lambda response: {"cells-g_listed": G in {each.group_id for each in response.groups}},
    "list-groups-by-cluster": lambda response: {"cells-g_listed": G in {each.group_id for each in response.groups}},
    "create-topics-by-topic": _look_at_created,
    "create-topics-by-cluster": _look_at_created,
    "delete-topics-name": _look_at_deleted,
    "delete-topics-id": _look_at_deleted,
    "delete-topics-id-describable": _look_at_deleted,
    "delete-topics-by-cluster": _look_at_deleted,
    "delete-topics-unknown": _look_at_deleted,
    "describe-transactions": lambda response: {
        "topics": [each.topic for each in response.transaction_states[0].topics]
    },
    "list-transactions": lambda response: {
        "ids": [each.transactional_id for each in response.transaction_states if each.transactional_id == OPEN]
    },
    "describe-log-dirs": lambda response: {"dirs": len(response.results)},
    "describe-log-dirs-v2": lambda response: {"dirs": len(response.results)},
}
