"""The table has a line for each broker and client, and the experiment fails if one of them is not as expected."""

from collections import Counter

import pytest

from oncelog.protocol.api_keys import ApiKey
from tests.interop.late_frames.experiment import FAULTS, Run, rounds
from tests.interop.late_frames.faults import Kind
from tests.interop.late_frames.summary import Summary, table
from tests.interop.late_frames.verdict import Verdict
from tests.interop.late_frames.workload import Outcome


def summary(broker: str, verdict: Verdict, *, protocol_version: int = 1, seeds: int = 1) -> Summary:
    added = Summary(broker, "a client")
    for seed in range(seeds):
        added.add(
            Run(
                seed=seed,
                protocol_version=protocol_version,
                faults=Counter({(Kind.HELD, ApiKey.END_TXN): 700, (Kind.COPIED, ApiKey.PRODUCE): 500}),
                responses=Counter(),
                outcomes=Counter({Outcome.COMMITTED: 60, Outcome.ABORTED: 40}),
                verdict=verdict,
            )
        )
    return added


CLEAN, TORN = Verdict(), Verdict(torn=["0/1 committed"], hanging=["topic-0 1 < 2"])


def test_table_of_several_seeds_has_their_sums() -> None:
    head, line = table([summary("kafka", TORN, seeds=2)]).splitlines()
    cells = dict(zip(head.replace("ABORTED BUT", "").split()[2:], line.split()[3:], strict=True))
    assert line.startswith("kafka, a client")
    assert cells == {
        "PROTOCOL": "1",
        "SEEDS": "2",
        "FRAMES": "2,400",
        "TRANSACTIONS": "200",
        "COMMITTED": "120",
        "TORN": "2",
        "LOST": "0",
        "VISIBLE": "0",
        "DUPLICATED": "0",
        "REORDERED": "0",
        "HANGING": "2",
    }


@pytest.mark.parametrize("verdict", [CLEAN, TORN])
@pytest.mark.parametrize(
    ("broker", "protocol_version", "expected"),
    [("oncelog", 1, CLEAN), ("oncelog", 2, CLEAN), ("kafka", 2, CLEAN), ("kafka", 1, TORN)],
)
def test_verdict_is_expected_of_its_broker_and_version(
    broker: str, protocol_version: int, expected: Verdict, verdict: Verdict
) -> None:
    assert summary(broker, verdict, protocol_version=protocol_version).is_as_expected == (verdict is expected)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [(300, [(7, 300)]), (FAULTS, [(7, FAULTS)]), (3_000, [(7, FAULTS), (8, FAULTS), (9, 600)])],
)
def test_rounds_of_many_frames_have_seeds_that_follow(frames: int, expected: list[tuple[int, int]]) -> None:
    assert rounds(7, frames) == expected
