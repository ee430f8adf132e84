"""Each fault of worn disks, clocks and links strikes, is counted by its kind, and costs nothing that was promised."""

import pytest

from tests.simulation import test_cluster_histories
from tests.simulation.fault_plan import WEAR, Fault, PlannedFault
from tests.simulation.journal import Journal, keep

_STRIKES = {
    Fault.SHORT_WRITE: "shortened write",
    Fault.SLOW_DISK: "slow disk call",
    Fault.READ_ERROR: "failed read",
    Fault.BIT_ROT: "bit rot",
    Fault.LOST_END: "lost end",
    Fault.CLOCK_SKEW: "clock skew",
    Fault.CLOCK_JUMP: "clock jump",
    Fault.ONE_WAY_CUT: "one-way cut",
    Fault.REFUSED_LINK: "refused link",
    Fault.LATE_DELIVERY: "late delivery",
}


@pytest.mark.parametrize("fault", WEAR)
def test_fault_of_a_worn_cluster_strikes_and_loses_nothing(fault: Fault) -> None:
    plan = [PlannedFault(number, fault, 1 + number % 3, number, False, False, 0.5) for number in range(6)]
    journal = Journal()
    with keep(journal):
        test_cluster_histories.run_worn(1, plan)
    assert journal.counts[_STRIKES[fault]] > 0, journal.counts
