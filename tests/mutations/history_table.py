"""The checker of histories: each of its passes is needed, and it notices a broker that breaks its promises."""

from typing import Final

from tests.mutations.mutation import Mutation

_VERDICT: Final = "clients/history/verdict.py"
_BAD: Final = "tests/unit/clients/history/test_bad_histories.py::test_bad_history_shows_its_anomalies_and_no_others"
_RECORDED: Final = "tests/simulation/test_recorded_histories.py::test_recorded_histories_show_no_anomaly"

HISTORY_MUTATIONS: Final = (
    Mutation("B104", _VERDICT, "    check_log,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_reads,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_lost_writes,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_final_reads,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_inside,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_polls_between,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_sends_between,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_transactions,\n", "", _BAD),
    Mutation("B104", _VERDICT, "    check_groups,\n", "", _BAD),
    Mutation("B104", _VERDICT, "(*CHECKS, partial(check_cycles, infer_ww=rules.infer_ww))", "CHECKS", _BAD),
    Mutation(
        "B104", "clients/history/evidence.py",
        "        return self.is_proven(operation) if operation.kind is Kind.TXN else self.is_read(write)\n",
        "        return self.is_read(write)\n",
        _BAD,
    ),
    Mutation(
        "B104", "broker/storage/partition_log.py",
        "        if unstable is None or unstable >= self.high_watermark:\n",
        "        if True:\n",
        _RECORDED,
    ),
    Mutation(
        "B104", "coordinator/group/offsets.py",
        "                if commit:\n",
        "                if True:\n",
        _RECORDED,
    ),
)  # fmt: skip
