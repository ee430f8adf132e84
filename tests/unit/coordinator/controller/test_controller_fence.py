"""Which control requests a broker obeys, by controller epoch and sequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.controller.controller_fence import NO_SEQUENCE, ControllerFence


@pytest.mark.parametrize(
    ("requests", "admitted"),
    [
        ([(1, 0), (1, 1), (1, 2)], [True, True, True]),
        ([(1, 5), (1, 5)], [True, True]),  # The last one came again.
        ([(1, 5), (1, 6), (1, 5)], [True, True, False]),
        ([(1, 5), (2, 0), (1, 6), (1, 7)], [True, True, False, False]),
        ([(1, 5), (2, 0), (2, 1)], [True, True, True]),
        ([(1, NO_SEQUENCE), (1, NO_SEQUENCE)], [True, True]),  # A controller that numbers nothing.
        ([(1, 5), (1, NO_SEQUENCE), (1, 4)], [True, True, False]),
        ([(2, NO_SEQUENCE), (1, NO_SEQUENCE)], [True, False]),
    ],
)
def test_fence_admits_only_what_nothing_newer_has_overtaken(
    requests: list[tuple[int, int]], admitted: list[bool]
) -> None:
    fence = ControllerFence()
    assert [fence.admit(epoch, sequence) for epoch, sequence in requests] == admitted


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20))
def test_fence_carries_out_numbered_requests_in_their_order(requests: list[tuple[int, int]]) -> None:
    fence = ControllerFence()
    carried_out = [request for request in requests if fence.admit(*request)]
    assert carried_out == sorted(carried_out)
    assert (fence.epoch, fence.sequence) == max(requests, default=(-1, NO_SEQUENCE))
