"""Make ``java_assignments.json``: what Apache Kafka's own assignors say of random groups.

Run ``make peers`` first, then ``python -m tests.unit.clients.consumer.assignors.make_java_assignments``.
"""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.processes import KAFKA_4, class_path

HERE = Path(__file__).resolve().parent
CASES = 150


def group(rng: random.Random) -> dict[str, Any]:
    """Topics, some of them empty or unknown to metadata; members, some of them static."""
    topics = [f"topic-{name}" for name in rng.sample(["a", "b", "B", "c", "é", "𝄞", "\uffee"], rng.randint(1, 5))]
    instances = rng.sample(["i-1", "i-2", "I-3", "i-10"], 4)
    members = {
        f"member-{rng.randrange(1000)}": {
            "topics": sorted(rng.sample(topics, rng.randint(1, len(topics)))),
            "instance": instances.pop() if instances and rng.random() < 0.4 else None,
        }
        for _ in range(rng.randint(1, 6))
    }
    return {"topics": {topic: rng.randint(1, 9) for topic in topics if rng.random() < 0.9}, "members": members}


def main() -> None:
    rng = random.Random(1)
    groups = [group(rng) for _ in range(CASES)]
    command = ["java", "-cp", class_path(KAFKA_4), str(HERE / "JavaAssignors.java")]
    lines = "".join(json.dumps(each) + "\n" for each in groups)
    responded = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert responded.returncode == 0, responded.stderr
    responses = [json.loads(line) for line in responded.stdout.splitlines()]
    rows = [{**requested, "assigned": response} for requested, response in zip(groups, responses, strict=True)]
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (HERE / "java_assignments.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
