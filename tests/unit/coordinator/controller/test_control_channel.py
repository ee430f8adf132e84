"""Requests to brokers keep their order, survive a broken connection, and never pile up."""

import asyncio

import pytest

from oncelog.coordinator.controller.control_channel import ControlChannel
from oncelog.coordinator.ports import OnResponse
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time

RESPONSE = UpdateMetadataResponse()


def request(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_epoch=number)


class Wire:
    """A ``BrokerChannel`` that responds when the test says so, or at once."""

    def __init__(self, *, at_once: bool = False, broken: bool = False) -> None:
        self.at_once = at_once
        self.broken = broken
        self.requested: list[int] = []
        self.waiting: list[OnResponse] = []

    def send(self, broker_id: int, request: Message, on_response: OnResponse) -> None:
        assert isinstance(request, UpdateMetadataRequest)
        self.requested.append(request.controller_epoch)
        if self.broken:
            on_response(None)
        elif self.at_once:
            on_response(RESPONSE)
        else:
            self.waiting.append(on_response)

    def respond(self, response: Message | None = RESPONSE) -> None:
        self.waiting.pop(0)(response)


class Scene:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.responded: list[int] = []
        self.caught_up: list[int] = []
        self.unreachable: set[int] = set()
        self.channel = ControlChannel(wire, self._on_response, self.caught_up.append, self.unreachable)

    def _on_response(self, broker_id: int, request: Message, response: Message) -> None:
        assert isinstance(request, UpdateMetadataRequest)
        self.responded.append(request.controller_epoch)

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.channel.send(1, request(number))


async def test_requests_are_sent_one_at_a_time_in_order() -> None:
    scene = Scene(Wire())
    scene.send(1, 2, 3)
    assert scene.wire.requested == [1]
    scene.wire.respond()
    assert scene.wire.requested == [1, 2]
    scene.wire.respond()
    scene.wire.respond()
    assert (scene.wire.requested, scene.responded, scene.caught_up) == ([1, 2, 3], [1, 2, 3], [])


async def test_local_broker_has_responded_when_send_returns() -> None:
    scene = Scene(Wire(at_once=True))
    scene.send(1, 2)
    assert scene.responded == [1, 2]


async def test_brokers_do_not_wait_for_each_other() -> None:
    scene = Scene(Wire())
    scene.channel.send(1, request(1))
    scene.channel.send(2, request(2))
    assert scene.wire.requested == [1, 2]


@in_virtual_time
async def test_lost_request_is_retried_with_backoff_and_then_everything_is_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    loop = asyncio.get_running_loop()
    scene = Scene(Wire(broken=True))
    scene.send(1, 2, 3)
    assert scene.channel.is_behind(1)
    await asyncio.sleep(60)
    attempts = len(scene.wire.requested)
    assert set(scene.wire.requested) == {1}
    assert 60 <= attempts <= 70  # 50 ms, 100 ms … and then every second.
    assert caplog.text.count("sending it again") == 1
    scene.send(4)  # Kept by nobody: the broker will be told everything.
    scene.wire.broken, scene.wire.at_once = False, True
    await asyncio.sleep(1.1)
    assert (scene.responded, scene.caught_up) == ([1], [1])
    assert not scene.channel.is_behind(1)
    scene.send(5)
    assert scene.responded == [1, 5]
    assert loop.time() < 70


@in_virtual_time
async def test_request_not_carried_out_is_retried_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Once is no news: a broker that has just registered may not listen yet."""
    caplog.set_level("INFO")
    scene = Scene(Wire())
    scene.send(1, 2)
    scene.wire.respond(LeaderAndIsrResponse(error_code=ErrorCode.REQUEST_TIMED_OUT))
    await asyncio.sleep(1.0)
    assert scene.wire.requested == [1, 1]
    assert "sending it again" not in caplog.text
    scene.wire.respond()
    assert (scene.responded, scene.caught_up) == ([1], [1])


@in_virtual_time
async def test_connection_that_breaks_again_starts_with_short_backoff() -> None:
    scene = Scene(Wire(broken=True))
    scene.send(1)
    await asyncio.sleep(10)
    scene.wire.broken = False
    await asyncio.sleep(1.1)
    scene.wire.respond()
    scene.wire.broken = True
    requested = len(scene.wire.requested)
    scene.send(2)
    await asyncio.sleep(0.2)
    assert len(scene.wire.requested) - requested == 3  # At once, after 50 ms, and 100 ms later.


async def test_queue_of_hanging_broker_is_bounded() -> None:
    scene = Scene(Wire())
    scene.send(*range(3_000))
    assert scene.channel.is_behind(1)
    scene.wire.respond()
    assert (scene.wire.requested, scene.responded, scene.caught_up) == ([0], [0], [1])


@pytest.mark.parametrize("response", [RESPONSE, None])
@in_virtual_time
async def test_forgotten_broker_is_sent_nothing_and_its_responses_do_not_count(response: Message | None) -> None:
    scene = Scene(Wire())
    scene.send(1, 2)
    scene.channel.forget(1)
    scene.wire.respond(response)
    await asyncio.sleep(10)
    assert (scene.wire.requested, scene.responded, scene.caught_up) == ([1], [], [])
    scene.send(3)  # Its next incarnation.
    assert scene.wire.requested == [1, 3]


@in_virtual_time
async def test_closed_channel_repeats_nothing() -> None:
    scene = Scene(Wire(broken=True))
    scene.send(1)
    scene.channel.close()
    await asyncio.sleep(10)
    assert scene.wire.requested == [1]


@in_virtual_time
async def test_lost_request_does_not_delay_all_responded() -> None:
    scene = Scene(Wire())
    scene.channel.send(1, request(1))
    scene.channel.send(2, request(2))
    reported = scene.channel.all_responded()
    scene.wire.respond(None)
    assert not reported.done()
    scene.wire.respond()
    await asyncio.sleep(0)
    assert reported.done()


@in_virtual_time
async def test_last_lost_request_completes_all_responded() -> None:
    scene = Scene(Wire())
    scene.send(1)
    reported = scene.channel.all_responded()
    scene.wire.respond(None)
    assert reported.done()


async def test_unreachable_broker_does_not_delay_all_responded() -> None:
    scene = Scene(Wire())
    scene.channel.send(1, request(1))
    scene.channel.send(2, request(2))
    reported = scene.channel.all_responded()
    scene.unreachable.add(1)
    scene.channel.unreachable_changed()
    assert not reported.done()
    scene.wire.waiting.pop()(RESPONSE)
    await asyncio.sleep(0)
    assert reported.done()
    assert scene.channel.all_responded().done()


async def test_later_request_does_not_delay_all_responded() -> None:
    """Else a cluster where something changes all the time would never be told."""
    scene = Scene(Wire())
    scene.send(1, 2)
    reported = scene.channel.all_responded()
    scene.send(3)
    scene.wire.respond()
    await asyncio.sleep(0)
    assert not reported.done()
    scene.wire.respond()
    await asyncio.sleep(0)
    assert reported.done()


@in_virtual_time
async def test_caught_up_broker_delays_all_responded_again() -> None:
    scene = Scene(Wire())
    scene.send(1, 2)
    scene.wire.respond(None)
    await asyncio.sleep(1)
    scene.wire.respond()
    scene.send(3)
    reported = scene.channel.all_responded()
    assert not reported.done()
    scene.wire.respond()
    await asyncio.sleep(0)
    assert reported.done()


async def test_forgotten_broker_does_not_delay_all_responded() -> None:
    scene = Scene(Wire())
    scene.send(1, 2)
    reported = scene.channel.all_responded()
    scene.channel.forget(1)
    assert reported.done()
