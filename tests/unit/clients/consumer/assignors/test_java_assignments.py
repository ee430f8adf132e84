"""Range and round robin give what Apache Kafka's own assignors give, whoever leads the group."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.clients.consumer.assignors import ASSIGNORS
from oncelog.clients.consumer.assignors.assignor import MemberSubscription

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "java_assignments.json").read_text())


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_assignor_on_java_cases_returns_javas_assignment(name: str) -> None:
    assert len(CASES) == 150
    for case in CASES:
        members = {
            member_id: MemberSubscription(topics=frozenset(member["topics"]), group_instance_id=member["instance"])
            for member_id, member in case["members"].items()
        }
        assigned = ASSIGNORS[name].assign(case["topics"], members)
        assert {member_id: sorted(map(str, got)) for member_id, got in assigned.items()} == {
            member_id: sorted(partitions) for member_id, partitions in case["assigned"][name].items()
        }, case
