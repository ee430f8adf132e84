"""Requests between brokers: their order, what becomes of them when a connection ends, and how a silence is noticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.broker.peers.cluster_channel import ClusterChannel
from oncelog.broker.peers.lanes import RequestTimeouts
from oncelog.broker.peers.local_channel import LocalChannel
from oncelog.broker.process.supervisor import Supervisor
from oncelog.clients.connection import Address
from oncelog.coordinator.controller.cluster_image import MetadataCache
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from oncelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from oncelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog.protocol.schema import Message, parse_versions
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import Reaction, ScriptedBroker

ME, OTHER = 1, 2


def update(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_epoch=number)


class Scene:
    """A channel, another broker, and what was heard of it."""

    def __init__(self, other: ScriptedBroker, supervisor: Supervisor) -> None:
        self.other = other
        self.address: Address | None = None
        self.responses: list[Message | None] = []
        self.refused: list[float] = []
        self.silent: list[float] = []
        loop = asyncio.get_running_loop()
        self.channel = ClusterChannel(
            ME,
            local=LocalChannel(ME, MetadataCache(), supervisor.spawn),
            address_of=lambda broker_id: self.address,
            spawn=supervisor.spawn,
            on_refused=lambda broker_id: self.refused.append(loop.time()),
            on_silence=lambda broker_id: self.silent.append(loop.time()),
            timeouts=RequestTimeouts(controller_ms=20_000, coordinator_ms=10_000),
        )

    def send(self, *requests: Message) -> None:
        for request in requests:
            self.channel.send(OTHER, request, self.responses.append)

    @property
    def requested(self) -> list[int]:
        return [request.controller_epoch for request in self.other.seen(UpdateMetadataRequest)]  # type: ignore[attr-defined]


@asynccontextmanager
async def scene(*, listens: bool = True) -> AsyncIterator[Scene]:
    supervisor = Supervisor()
    other = ScriptedBroker(
        {
            UpdateMetadataRequest: UpdateMetadataResponse(),
            LeaderAndIsrRequest: LeaderAndIsrResponse(),
            AlterPartitionRequest: AlterPartitionResponse(),
            AddPartitionsToTxnRequest: AddPartitionsToTxnResponse(),
            WriteTxnMarkersRequest: WriteTxnMarkersResponse(),
        }
    )
    made = Scene(other, supervisor)
    made.address = await other.start()
    if not listens:
        other.stop()
    try:
        yield made
    finally:
        made.channel.close()
        await supervisor.stop()


async def seconds(number: float) -> None:
    await asyncio.sleep(number)


@in_virtual_time
async def test_requests_arrive_in_order_over_one_connection_in_the_newest_version_of_both() -> None:
    async with scene() as made:
        made.other.versions[6] = parse_versions("0-7")
        made.send(*(update(number) for number in range(20)))
        await seconds(1)
        made.send(update(20))
        await seconds(1)
        assert made.requested == list(range(21))
        assert made.other.versions_of(UpdateMetadataRequest) == [7] * 21
        assert made.responses == [UpdateMetadataResponse()] * 21
        assert len(made.other.connections) == 1


@in_virtual_time
async def test_request_to_a_broker_that_does_not_listen_fails_at_once() -> None:
    async with scene(listens=False) as made:
        made.send(update(1), update(2))
        await seconds(0.01)
        assert made.responses == [None, None]
        made.send(update(3))  # So soon it is not even tried.
        assert made.responses == [None, None, None]


@in_virtual_time
async def test_request_to_an_unknown_address_gets_no_response() -> None:
    async with scene() as made:
        made.address = None
        made.send(update(1))
        await seconds(0.01)
        assert made.responses == [None]


@in_virtual_time
async def test_ended_connection_fails_its_requests_and_is_made_anew() -> None:
    async with scene() as made:
        made.other.script[UpdateMetadataRequest] = Reaction.CLOSE
        made.send(update(1), update(2))
        await seconds(1)
        assert made.responses == [None, None]
        made.other.script[UpdateMetadataRequest] = UpdateMetadataResponse()
        made.send(update(3))
        await seconds(1)
        assert made.responses == [None, None, UpdateMetadataResponse()]
        assert not made.refused
        assert not made.silent


@in_virtual_time
async def test_broker_that_restarts_elsewhere_is_found_by_its_new_address() -> None:
    async with scene() as made:
        made.send(update(1))
        await seconds(1)
        made.other.stop()
        made.address = await made.other.start()
        await seconds(1)
        made.send(update(2))
        await seconds(1)
        assert made.responses == [UpdateMetadataResponse()] * 2


@in_virtual_time
async def test_broker_whose_process_is_gone_is_reported_at_once() -> None:
    async with scene() as made:
        made.send(update(1))
        await seconds(1)
        began = asyncio.get_running_loop().time()
        made.other.stop()
        await seconds(0.5)
        assert made.refused
        assert made.refused[0] - began < 0.01
        assert not made.silent


@in_virtual_time
async def test_watched_broker_is_connected_to_and_reported_while_it_is_away() -> None:
    async with scene() as made:
        made.channel.watch(OTHER)
        await seconds(0.5)
        assert len(made.other.connections) == 2, "for heartbeats, and for orders"
        made.other.stop()
        await seconds(10)
        assert len(made.refused) > 20
        address = made.address
        made.address = await made.other.start()
        assert made.address != address
        await seconds(1)
        reports = len(made.refused)
        assert made.other.connections
        await seconds(10)
        assert len(made.refused) == reports


@in_virtual_time
async def test_broker_that_was_never_there_is_reported_after_a_while_only() -> None:
    """It may be starting."""
    async with scene(listens=False) as made:
        made.channel.watch(OTHER)
        await seconds(0.9)
        assert not made.refused
        await seconds(1)
        assert made.refused


@in_virtual_time
async def test_watched_broker_that_stops_responding_is_reported_after_two_seconds() -> None:
    async with scene() as made:
        made.channel.watch(OTHER)
        await seconds(5)
        began = asyncio.get_running_loop().time()
        made.other.api_versions = Reaction.SILENCE
        await seconds(10)
        assert made.silent
        assert 2.0 <= made.silent[0] - began <= 2.4
        assert not made.refused


@in_virtual_time
async def test_silent_broker_that_is_not_watched_is_not_reported() -> None:
    async with scene() as made:
        made.send(update(1))
        made.channel.watch(OTHER)
        await seconds(1)
        made.channel.unwatch(OTHER)
        made.other.api_versions = Reaction.SILENCE
        await seconds(20)
        assert not made.silent


@in_virtual_time
async def test_broker_that_opens_many_logs_is_given_time() -> None:
    async with scene() as made:
        made.channel.watch(OTHER)
        await seconds(1)
        states = [LeaderAndIsrPartitionState(partition_index=index) for index in range(1_000)]
        request = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=states)])
        made.other.script[LeaderAndIsrRequest] = Reaction.HOLD
        made.other.api_versions = Reaction.SILENCE  # Whatever comes later waits behind it.
        made.send(request)
        await seconds(8)
        assert not made.silent
        made.other.release(LeaderAndIsrResponse())
        await seconds(1.5)
        assert made.responses == [LeaderAndIsrResponse()]
        assert made.silent  # With that answered, the usual patience holds again.


@in_virtual_time
async def test_requests_that_wait_for_different_things_hold_up_nothing_of_each_other() -> None:
    async with scene() as made:
        made.channel.watch(OTHER)
        for waits in (WriteTxnMarkersRequest, AddPartitionsToTxnRequest, AlterPartitionRequest):
            made.other.script[waits] = Reaction.HOLD
            made.send(waits())
            await seconds(0.5)
        assert len(made.other.held) == 3
        made.send(update(1))
        await seconds(5)
        assert made.responses == [UpdateMetadataResponse()]
        made.other.release(WriteTxnMarkersResponse())
        await seconds(0.1)
        assert made.responses == [UpdateMetadataResponse(), WriteTxnMarkersResponse()]
        assert not made.silent


@in_virtual_time
async def test_missing_response_ends_no_connection_but_its_own() -> None:
    """Each after the time that is set for its kind of request."""
    async with scene() as made:
        made.send(update(1))
        await seconds(1)
        (orders,) = made.other.connections
        for waits in (WriteTxnMarkersRequest, AddPartitionsToTxnRequest):
            made.other.script[waits] = Reaction.HOLD
            made.send(waits())
        await seconds(9.9)
        assert made.responses == [UpdateMetadataResponse()]
        await seconds(0.2)
        assert made.responses == [UpdateMetadataResponse(), None, None]
        made.other.script[AlterPartitionRequest] = Reaction.HOLD
        made.send(AlterPartitionRequest())
        await seconds(19.9)
        assert len(made.responses) == 3
        await seconds(0.2)
        assert made.responses[3:] == [None]
        made.send(update(2))
        await seconds(1)
        assert made.responses[4:] == [UpdateMetadataResponse()]
        assert orders in made.other.connections


@in_virtual_time
async def test_broker_that_was_given_up_fails_requests_but_gets_control_requests() -> None:
    async with scene() as made:
        for waits in (WriteTxnMarkersRequest, UpdateMetadataRequest):
            made.other.script[waits] = Reaction.HOLD
        made.send(WriteTxnMarkersRequest(), update(1))
        await seconds(1)
        made.channel.give_up(OTHER)
        await seconds(0.01)
        assert made.responses == [None]
        made.other.held = [held for held in made.other.held if isinstance(held[3], UpdateMetadataRequest)]
        made.other.release(UpdateMetadataResponse())
        await seconds(0.01)
        assert made.responses == [None, UpdateMetadataResponse()]
        made.other.script[WriteTxnMarkersRequest] = WriteTxnMarkersResponse()
        made.send(WriteTxnMarkersRequest())  # It may be back.
        await seconds(1)
        assert made.responses == [None, UpdateMetadataResponse(), WriteTxnMarkersResponse()]
        assert not made.refused
        assert not made.silent


@in_virtual_time
async def test_broker_is_reached_only_if_it_responds_on_a_new_connection() -> None:
    async with scene() as made:
        assert await made.channel.reaches(OTHER, 0.4)
        made.other.api_versions = Reaction.SILENCE
        assert not await made.channel.reaches(OTHER, 0.4)
        made.other.stop()
        assert not await made.channel.reaches(OTHER, 0.4)
        made.address = None
        assert not await made.channel.reaches(OTHER, 0.4)
        assert made.other.seen(ApiVersionsRequest) == []


@in_virtual_time
async def test_closed_channel_fails_all_requests_and_sends_none() -> None:
    async with scene() as made:
        made.other.script[UpdateMetadataRequest] = Reaction.HOLD
        made.channel.watch(OTHER)
        made.send(update(1))
        await seconds(1)
        made.send(update(2))
        made.channel.close()
        await seconds(1)
        made.send(update(3))
        made.channel.watch(OTHER)
        await seconds(10)
        assert made.responses == [None, None, None]
        assert not made.other.connections
        assert not made.refused


@in_virtual_time
async def test_requests_to_a_broker_that_has_moved_go_to_its_new_address() -> None:
    """Where it was, nothing responds, and nothing ends the connection: the machine is gone."""
    async with scene() as made:
        made.other.script[UpdateMetadataRequest] = Reaction.SILENCE
        made.channel.check_addresses()
        made.send(update(1))
        await seconds(1)
        successor = ScriptedBroker({UpdateMetadataRequest: UpdateMetadataResponse()})
        made.address = await successor.start()
        made.channel.check_addresses()
        await seconds(0.1)
        assert made.responses == [None]
        made.send(update(2))
        await seconds(0.1)
        assert made.responses == [None, UpdateMetadataResponse()]
