import asyncio

import pytest

from oncelog.broker.process.containment import Containment


def test_containment_of_an_exception_reports_it_and_goes_on() -> None:
    reported: list[Exception] = []
    error = ValueError("one item")
    with Containment(reported.append):
        raise error
    assert reported == [error]


def test_containment_of_a_cancellation_lets_it_through_unreported() -> None:
    reported: list[Exception] = []
    with pytest.raises(asyncio.CancelledError), Containment(reported.append):
        raise asyncio.CancelledError
    assert not reported
