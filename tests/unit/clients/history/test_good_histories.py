"""The checker's self-test, second part: no alarm about what a correct cluster can cause."""

import os

from oncelog.clients.history.operation import Kind, Outcome
from oncelog.clients.history.verdict import judge
from tests.unit.clients.history.good_histories import good_history

SEEDS = int(os.environ.get("ONCELOG_HISTORIES", "10000"))


def test_good_histories_cause_no_alarm() -> None:
    for seed in range(SEEDS):
        verdict = judge(good_history(seed))
        assert verdict.is_good, (seed, verdict.forbidden)


def test_good_histories_have_every_kind_of_operation_and_outcome() -> None:
    seen = {(operation.kind, operation.outcome) for seed in range(50) for operation in good_history(seed).operations}
    assert {kind for kind, _ in seen} == set(Kind)
    assert {(Kind.TXN, outcome) for outcome in Outcome} | {(Kind.SEND, outcome) for outcome in Outcome} <= seen
