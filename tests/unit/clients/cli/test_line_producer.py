"""What the error of a line means for the advice and the exit code of ``oncelog produce``."""

import pytest

from oncelog.clients.cli.line_producer import means_no_response
from oncelog.clients.cli.produce import advice_for
from oncelog.clients.errors import DeliveryTimedOut
from oncelog.protocol.errors import ErrorCode


def test_line_refused_by_a_broker_has_its_remedy() -> None:
    error = DeliveryTimedOut("late", maybe_written=False, last_error=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not means_no_response(error)
    assert "min.insync.replicas" in (advice_for(error) or "")


@pytest.mark.parametrize("maybe_written", [True, False])
def test_line_without_a_response_counts_as_no_broker(maybe_written: bool) -> None:
    error = DeliveryTimedOut("late", maybe_written=maybe_written)
    assert means_no_response(error)
    assert advice_for(error) is None
