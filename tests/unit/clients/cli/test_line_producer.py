"""What the error of a line means for the advice and the exit code of ``oncelog produce``."""

import pytest

from oncelog.clients.cli.line_producer import means_no_answer
from oncelog.clients.cli.produce import advice_for
from oncelog.clients.errors import DeliveryTimedOut
from oncelog.protocol.errors import ErrorCode


def test_a_line_whose_last_attempt_was_refused_got_an_answer_and_its_advice() -> None:
    error = DeliveryTimedOut("late", maybe_written=False, last_error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not means_no_answer(error)
    assert "min.insync.replicas" in (advice_for(error) or "")


@pytest.mark.parametrize("maybe_written", [True, False])
def test_a_line_whose_last_attempt_was_not_answered_got_no_answer(maybe_written: bool) -> None:
    error = DeliveryTimedOut("late", maybe_written=maybe_written)
    assert means_no_answer(error)
    assert advice_for(error) is None
