"""Client quotas through the admin client: what is sent, and what comes of the responses."""

import asyncio

import pytest

from oncelog.clients.admin.quotas import alter_client_quotas, describe_client_quotas
from oncelog.clients.admin.topics import NewTopic, create_topics
from oncelog.clients.errors import BrokerRefused, Refusal
from oncelog.protocol.client_quotas import ANY, DEFAULT, QuotaEntity, QuotaFilter
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
)
from oncelog.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from oncelog.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from oncelog.protocol.schema import Message
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

ALICE, EVERYONE = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT, client_id="c")


class Quotas:
    """A broker that refuses the quotas of alice, those of everyone once for a while, and filters by IP."""

    def __init__(self) -> None:
        self.passing = [ErrorCode.REQUEST_TIMED_OUT]

    def alter(self, request: Message) -> Message:
        assert isinstance(request, AlterClientQuotasRequest)
        entries = []
        for each in request.entries:
            error = ErrorCode.INVALID_REQUEST if each.entity[0].entity_name == "alice" else ErrorCode.NONE
            if not error and self.passing:
                error = self.passing.pop()
            message = "no" if error is ErrorCode.INVALID_REQUEST else None
            entries.append(AlteredEntryData(error_code=error, error_message=message, entity=each.entity))
        return AlterClientQuotasResponse(entries=entries)

    def describe(self, request: Message) -> Message:
        assert isinstance(request, DescribeClientQuotasRequest)
        if any(each.entity_type == "ip" for each in request.components):
            return DescribeClientQuotasResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no", entries=None
            )
        parts = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="c")]
        newer = EntryData(entity=[EntityData(entity_type="group", entity_name="g")])
        entry = EntryData(entity=parts, values=[ValueData(key="producer_byte_rate", value=5.0)])
        return DescribeClientQuotasResponse(error_message=None, entries=[entry, newer])

    def broker(self) -> ScriptedBroker:
        return ScriptedBroker({AlterClientQuotasRequest: self.alter, DescribeClientQuotasRequest: self.describe})


@in_virtual_time
async def test_alter_client_quotas_has_an_outcome_for_each_and_retries_only_what_passes() -> None:
    async with cluster_of(broker := Quotas().broker()) as cluster:
        changes = {ALICE: {"producer_byte_rate": 1.0}, EVERYONE: {"producer_byte_rate": None, "consumer_byte_rate": 2}}
        outcomes = await alter_client_quotas(cluster, changes)
        assert outcomes == {ALICE: Refusal(error=ErrorCode.INVALID_REQUEST, message="no"), EVERYONE: None}
        first, second = broker.seen(AlterClientQuotasRequest)
        assert isinstance(first, AlterClientQuotasRequest)
        assert isinstance(second, AlterClientQuotasRequest)
        assert second.entries == first.entries[1:]
        assert [(op.key, op.value, op.remove) for op in second.entries[0].ops] == [
            ("producer_byte_rate", 0.0, True),
            ("consumer_byte_rate", 2.0, False),
        ]
        assert [each.entity_name for each in second.entries[0].entity] == [None, "c"]


@in_virtual_time
async def test_describe_client_quotas_leaves_out_entities_of_unknown_types() -> None:
    async with cluster_of(broker := Quotas().broker()) as cluster:
        wanted = QuotaFilter(user=DEFAULT, client_id=ANY, strict=True)
        assert await describe_client_quotas(cluster, wanted) == {EVERYONE: {"producer_byte_rate": 5.0}}
        (request,) = broker.seen(DescribeClientQuotasRequest)
        assert isinstance(request, DescribeClientQuotasRequest)
        assert [(each.entity_type, each.match_type, each.match) for each in request.components] == [
            ("user", 1, None),
            ("client-id", 2, None),
        ]
        assert request.strict
        with pytest.raises(BrokerRefused):
            await describe_client_quotas(cluster, QuotaFilter(ip="10.0.0.7"))


@in_virtual_time
async def test_item_that_is_throttled_is_sent_again_when_the_broker_reads_again() -> None:
    loop, sent = asyncio.get_running_loop(), []

    def create(request: Message) -> Message:
        assert isinstance(request, CreateTopicsRequest)
        sent.append(loop.time())
        error = ErrorCode.NONE if len(sent) > 1 else ErrorCode.THROTTLING_QUOTA_EXCEEDED
        topic = CreatableTopicResult(name="t", error_code=error, error_message=None)
        return CreateTopicsResponse(throttle_time_ms=7_000 if error else 0, topics=[topic])

    async with cluster_of(ScriptedBroker({CreateTopicsRequest: create})) as cluster:
        assert await create_topics(cluster, [NewTopic(name="t")]) == {"t": None}
        first, second = sent
        assert 7.0 <= second - first < 8.0
