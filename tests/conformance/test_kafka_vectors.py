"""Our bytes are those of Apache Kafka's own classes, for every declared message and version.

``vectors/kafka-3.9.json`` was made with the last Kafka that spoke the control plane of the ZooKeeper era,
``vectors/kafka-4.json`` holds what only newer versions have; ``make_vectors.py`` makes both again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.protocol.compiler import decode, encode
from tests.conformance.kafka_json import from_json
from tests.unit.protocol.declared import every_version, message_classes

FOLDER = Path(__file__).resolve().parent / "vectors"
VECTORS: list[dict[str, Any]] = [
    vector for path in sorted(FOLDER.glob("*.json")) for vector in json.loads(path.read_text())
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['message']}-v{vector['version']}")
def test_bytes_equal_those_of_kafka(vector: dict[str, Any]) -> None:
    cls = message_classes()[vector["message"]]
    message = from_json(cls, vector["version"], vector["fields"])
    expected = bytes.fromhex(vector["bytes"])
    assert encode(message, vector["version"]) == expected
    assert decode(cls, vector["version"], expected) == message


def test_vectors_cover_every_declared_version() -> None:
    declared = {(cls.__name__, version) for cls, version in every_version()}
    assert {(vector["message"], vector["version"]) for vector in VECTORS} == declared
