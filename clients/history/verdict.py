"""``judge``: all passes over a history, and whether anything that they found is forbidden."""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from oncelog.clients.history.anomaly import ALLOWED, ALLOWED_WITH_WW, Anomaly, AnomalyKind
from oncelog.clients.history.atomicity import check_transactions
from oncelog.clients.history.cycles import check_cycles
from oncelog.clients.history.evidence import Evidence
from oncelog.clients.history.group_positions import check_groups
from oncelog.clients.history.history import History
from oncelog.clients.history.losses import check_final_reads, check_lost_writes
from oncelog.clients.history.operation import Outcome
from oncelog.clients.history.orders import check_inside, check_polls_between, check_sends_between
from oncelog.clients.history.read_lag import worst_realtime_lag
from oncelog.clients.history.reads import check_log, check_reads

Check: TypeAlias = Callable[[Evidence], Iterable[Anomaly]]

CHECKS: Final[tuple[Check, ...]] = (
    check_log,
    check_reads,
    check_lost_writes,
    check_final_reads,
    check_inside,
    check_polls_between,
    check_sends_between,
    check_transactions,
    check_groups,
)
"""All passes but ``check_cycles``, which takes an option."""
_KEPT: Final = 100
"""Anomalies of each kind that a verdict keeps; it counts them all."""


class Rules(NamedTuple):
    """What is judged, and what is allowed."""

    allowed: Set[AnomalyKind] = ALLOWED
    infer_ww: bool = False
    """Whether the order of the log counts as a dependency between writers."""

    @classmethod
    def of(
        cls, *, infer_ww: bool = False, allow: Iterable[AnomalyKind] = (), forbid: Iterable[AnomalyKind] = ()
    ) -> "Rules":
        """Return the rules for Kafka with some anomalies allowed and others forbidden."""
        usual = ALLOWED_WITH_WW if infer_ww else ALLOWED
        return cls((usual | {*allow}) - {*forbid}, infer_ww)


@dataclass(slots=True)
class Findings:
    """The anomalies of one kind."""

    count: int = 0
    kept: list[Anomaly] = field(default_factory=list)

    def add(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and keep it if it is among the first."""
        self.count += 1
        if len(self.kept) < _KEPT:
            self.kept.append(anomaly)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was found, and how much was there to be judged."""

    rules: Rules
    findings: dict[AnomalyKind, Findings]
    operations: dict[Outcome, int]
    sends: int
    reads: int
    has_final_read: bool
    worst_realtime_lag: int
    """In nanoseconds; see ``read_lag``."""

    @property
    def forbidden(self) -> dict[AnomalyKind, Findings]:
        """The findings that no cluster may cause."""
        return {kind: found for kind, found in self.findings.items() if kind not in self.rules.allowed}

    @property
    def is_good(self) -> bool:
        """Whether nothing forbidden was found."""
        return not self.forbidden


def passes(rules: Rules) -> tuple[Check, ...]:
    """Return all passes by these rules."""
    return (*CHECKS, partial(check_cycles, infer_ww=rules.infer_ww))


def judge(history: History, rules: Rules | None = None, checks: Iterable[Check] | None = None) -> Verdict:
    """Return the verdict on a history: by the rules for Kafka and all passes, if there are no others."""
    rules = rules or Rules()
    evidence = Evidence(history)
    findings: dict[AnomalyKind, Findings] = {}
    for check in passes(rules) if checks is None else checks:
        for anomaly in check(evidence):
            findings.setdefault(anomaly.kind, Findings()).add(anomaly)
    outcomes = dict.fromkeys(Outcome, 0)
    for operation in history.operations:
        outcomes[operation.outcome] += 1
    return Verdict(
        rules=rules,
        findings={kind: findings[kind] for kind in AnomalyKind if kind in findings},
        operations=outcomes,
        sends=len(evidence.writes),
        reads=sum(len(operation.reads) for operation in history.operations),
        has_final_read=bool(history.finals),
        worst_realtime_lag=worst_realtime_lag(evidence),
    )
