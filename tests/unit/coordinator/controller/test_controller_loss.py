"""Who may take over from a controller that it does not reach: every cluster of up to six brokers, every link of it."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import pytest

from oncelog.coordinator.controller.controller_loss import ControllerContact, may_take_over

LOST, REACHED, UNKNOWN = ControllerContact.LOST, ControllerContact.REACHED, ControllerContact.UNKNOWN
MOST_OTHERS = 4


def every_case() -> Iterator[tuple[tuple[ControllerContact, ...], bool]]:
    for count in range(MOST_OTHERS + 1):
        for others in combinations_with_replacement(ControllerContact, count):
            for refuses in (False, True):
                yield others, refuses


def test_takeover_always_has_the_majority_of_the_brokers_that_count() -> None:
    for others, refuses in every_case():
        counted = len(others) + (1 if refuses else 2)
        lost = 1 + others.count(LOST)
        assert may_take_over(others, controller_refuses=refuses) == (lost > counted - lost), (others, refuses)


@pytest.mark.parametrize("refuses", [False, True])
def test_takeover_with_one_cut_link_is_refused(refuses: bool) -> None:
    """A cut may drop what is sent, or refuse it."""
    for count in range(1, MOST_OTHERS + 1):
        assert not may_take_over([REACHED] * count, controller_refuses=refuses)


@pytest.mark.parametrize("refuses", [False, True])
def test_takeover_from_a_controller_that_is_gone_needs_all_others_or_most(refuses: bool) -> None:
    for count in range(1, MOST_OTHERS + 1):
        assert may_take_over([LOST] * count, controller_refuses=refuses)


def test_takeover_by_a_broker_that_reaches_no_other_is_refused() -> None:
    for count in range(1, MOST_OTHERS + 1):
        assert not may_take_over([UNKNOWN] * count, controller_refuses=False)
        assert not may_take_over([UNKNOWN] * count, controller_refuses=True)


def test_takeover_in_a_cluster_of_two_needs_a_refusal() -> None:
    """Silence is left to the metadata store."""
    assert not may_take_over([], controller_refuses=False)
    assert may_take_over([], controller_refuses=True)


def test_disjoint_parts_of_a_cluster_never_both_take_over() -> None:
    """The brokers that have lost the controller are one part; the controller and those that reach it the other one."""
    for size in range(2, MOST_OTHERS + 3):
        for reaches in product((False, True), repeat=size - 1):
            if not all(reaches):
                others = [REACHED if reached else LOST for reached in reaches]
                others.remove(LOST)  # The broker that asks.
                takes_over = may_take_over(others, controller_refuses=False)
                assert takes_over == (reaches.count(False) > size / 2)
