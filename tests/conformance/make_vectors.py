"""Make ``vectors/*.json``: what Apache Kafka's own classes encode our instances to.

Run ``make peers`` first, then ``python -m tests.conformance.make_vectors``. Every (message, version) that Kafka 3.9
has is made with it, the last release that knew ZooKeeper and its control plane; what only newer versions have is made
with Kafka 4.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.conformance.kafka_json import to_json
from tests.unit.protocol.declared import every_version, full, sparse

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent.parent / ".peers"
ABSENT = "-"
OURS = {
    "AlterPartitionRequest": ["lost_controller_id"],
    "AlterPartitionResponse": ["controller_contact"],
    "TransactionLogValue": ["cause"],
}
"""Tagged fields that Kafka does not have, and skips."""


def instances() -> list[dict[str, Any]]:
    return [
        {
            "message": cls.__name__,
            "version": version,
            "fields": _known_to_kafka(cls.__name__, to_json(message, version)),
        }
        for cls, version in every_version()
        for message in (full(cls, version), sparse(cls, version))
    ]


def _known_to_kafka(message: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in OURS.get(message, ())}


def encoded_by(peer: str, wanted: list[dict[str, Any]]) -> list[str]:
    """One answer for each instance from the Kafka whose jars are in ``.peers/<peer>/lib``."""
    command = ["java", "-cp", f"{PEERS / peer / 'lib'}/*", str(HERE / "java" / "KafkaVectors.java")]
    lines = "".join(json.dumps(instance) + "\n" for instance in wanted)
    responded = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert responded.returncode == 0, responded.stderr
    return responded.stdout.splitlines()


def write(name: str, vectors: list[dict[str, Any]]) -> None:
    rows = ",\n".join(json.dumps(vector, ensure_ascii=False, separators=(",", ":")) for vector in vectors)
    (HERE / "vectors" / f"{name}.json").write_text(f"[\n{rows}\n]\n")
    print(f"{name}: {len(vectors)} vectors")


def main() -> None:
    wanted = instances()
    for peer in ("kafka-3.9", "kafka-4"):
        responses = encoded_by(peer, wanted)
        paired = list(zip(wanted, responses, strict=True))
        write(peer, [{**instance, "bytes": response} for instance, response in paired if response != ABSENT])
        wanted = [instance for instance, response in paired if response == ABSENT]
    for instance in wanted:
        print(f"without a vector: {instance['message']} v{instance['version']}")


if __name__ == "__main__":
    main()
