"""A scripted producer of transaction version 2: it adds nothing beforehand, and every end gives it a new epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.scripted_producer import ScriptedProducer, ok
from tests.simulation import requests


class Version2Producer(ScriptedProducer):
    """``identity`` is the producer id and epoch of the present transaction."""

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    async def produce(self, batch: bytearray, partition: TopicPartition) -> PartitionProduceResponse:
        settled = await self._settled(
            requests.produce(partition, bytearray(batch), transactional_id=self.transactional_id),
            requests.TRANSACTION_2_PRODUCE_VERSION,
            lambda settled: settled.responses[0].partition_responses[0].error_code,
        )
        response: PartitionProduceResponse = settled.responses[0].partition_responses[0]
        return response

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, generation: int = -1, member_id: str = ""
    ) -> ErrorCode:
        assert self.transactional_id is not None
        request = requests.txn_offset_commit(
            self.transactional_id, self.producer_id, self.epoch, group, offsets, generation=generation
        )
        response = await self._settled(
            request,
            requests.TRANSACTION_2_TXN_OFFSET_COMMIT_VERSION,
            lambda response: next(iter(requests.committed_partitions(response).values())),
        )
        return next(iter(requests.committed_partitions(response).values()))

    async def end(self, *, commit: bool) -> ErrorCode:
        """EndTxn; after it this producer is who the response says."""
        response = await self.ask_for_end(commit=commit)
        if response.error_code == ErrorCode.NONE:
            self.become(response)
        return ErrorCode(response.error_code)

    async def ask_for_end(self, *, commit: bool) -> Any:
        """EndTxn, whose response changes nothing here."""
        return await self._settled(
            self.end_request(commit=commit),
            requests.TRANSACTION_2_END_TXN_VERSION,
            lambda response: response.error_code,
        )

    def become(self, response: Any) -> None:
        """Go on as the response of an EndTxn or InitProducerId says."""
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()

    async def open_transaction(self, values: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        for partition, batch in values.items():
            ok(await self.send(partition, *batch))
