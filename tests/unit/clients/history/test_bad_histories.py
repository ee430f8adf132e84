"""The checker's self-test, first part: it finds what is wrong, and each of its passes is needed for that."""

from collections import Counter

import pytest

from oncelog.clients.history.anomaly import MEANINGS, AnomalyKind
from oncelog.clients.history.verdict import Rules, judge, passes
from tests.unit.clients.history.bad_histories import BAD_HISTORIES, BadHistory
from tests.unit.clients.history.notation import parse

LEAST_HISTORIES = 60
LEAST_OF_EACH = 2


def kinds(bad: BadHistory) -> set[AnomalyKind]:
    return {AnomalyKind(name) for name in bad.anomalies.split()}


@pytest.mark.parametrize("bad", BAD_HISTORIES, ids=lambda bad: bad.name)
def test_bad_history_shows_its_anomalies_and_no_others(bad: BadHistory) -> None:
    verdict = judge(parse(bad.text), Rules.of(infer_ww=bad.infer_ww))
    assert set(verdict.findings) == kinds(bad)
    assert verdict.is_good == (kinds(bad) <= verdict.rules.allowed)
    assert all(anomaly.operations and anomaly.text for found in verdict.findings.values() for anomaly in found.kept)


def test_bad_histories_show_each_anomaly_twice() -> None:
    first = Counter(AnomalyKind(bad.anomalies.split()[0]) for bad in BAD_HISTORIES)
    assert len({bad.name for bad in BAD_HISTORIES}) == len(BAD_HISTORIES) >= LEAST_HISTORIES
    assert {kind: count for kind in AnomalyKind if (count := first[kind]) < LEAST_OF_EACH} == {}


@pytest.mark.parametrize("left_out", range(len(passes(Rules()))))
def test_checker_without_a_pass_overlooks_a_bad_history(left_out: int) -> None:
    overlooked = []
    for bad in BAD_HISTORIES:
        rules = Rules.of(infer_ww=bad.infer_ww)
        others = [check for number, check in enumerate(passes(rules)) if number != left_out]
        if set(judge(parse(bad.text), rules, others).findings) != kinds(bad):
            overlooked.append(bad.name)
    assert len(overlooked) >= LEAST_OF_EACH


def test_rules_allow_and_forbid_anomalies_by_name() -> None:
    interleaved = parse("w txn 0-9 ok >a@0=x >a@2=z\nv txn 0-9 ok >a@1=y")
    assert judge(interleaved).is_good
    assert not judge(interleaved, Rules.of(forbid=[AnomalyKind.INT_SEND_SKIP])).is_good
    unknown = parse("c poll 0-1 ok <a@0=x")
    assert not judge(unknown).is_good
    assert judge(unknown, Rules.of(allow=[AnomalyKind.UNKNOWN_VALUE])).is_good


def test_anomalies_all_have_a_meaning() -> None:
    assert set(MEANINGS) == set(AnomalyKind)
