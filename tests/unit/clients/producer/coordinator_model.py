"""What a transaction coordinator and its partitions do to one transactional id, in as few lines as it takes.

Ends are complete at once: markers are written to all partitions of the transaction in the same step. In version 2 they
carry the next epoch, so that whatever still comes from before is fenced.
"""

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.produce import PartitionProduceResponse
from oncelog.protocol.records.record_batch import read_header
from tests.unit.clients.producer.broker_model import PartitionModel, ProducerEntry, refusal

PRODUCER_ID = 7


class CoordinatorModel:
    """One transactional id."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [PartitionModel() for _ in range(partitions)]
        self.epoch = -1
        self.open: dict[int, int] = {}
        """Partitions of the transaction, and where it begins in them."""
        self.is_open = False
        self.last_end: tuple[int, bool] | None = None
        """The epoch that the last transaction was of, and whether it committed."""
        self.visible: list[list[bytes]] = [[] for _ in range(partitions)]
        """What a read_committed consumer gets."""

    def init(self, bumped_epoch: int) -> ErrorCode:
        """InitProducerId; ``bumped_epoch`` is -1 for a new producer."""
        if bumped_epoch not in (-1, self.epoch, self.epoch - 1):
            return ErrorCode.PRODUCER_FENCED
        if bumped_epoch == self.epoch - 1 and bumped_epoch >= 0:
            return ErrorCode.NONE  # A retry whose response was lost.
        if self.is_open:
            self._finish(commit=False)
        self.epoch += 1
        self.last_end = None
        return ErrorCode.NONE

    def add(self, epoch: int, partition: int | None) -> ErrorCode:
        """AddPartitionsToTxn, or with None AddOffsetsToTxn."""
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        self.is_open = True
        if partition is not None:
            self.open.setdefault(partition, len(self.partitions[partition].log))
        return ErrorCode.NONE

    def end(self, epoch: int, *, commit: bool, protocol: int) -> ErrorCode:
        """EndTxn; in version 2 with the next epoch."""
        if self.last_end == (epoch, commit) and not self.is_open:
            return ErrorCode.NONE
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if not self.is_open and protocol == 1:
            return ErrorCode.INVALID_TXN_STATE
        if protocol == 2:
            self.epoch += 1
        self._finish(commit=commit)
        self.last_end = (epoch, commit)
        return ErrorCode.NONE

    def _finish(self, *, commit: bool) -> None:
        for partition, start in self.open.items():
            model = self.partitions[partition]
            if commit:
                self.visible[partition] += model.log[start:]
            entry = model.producers.get(PRODUCER_ID)
            if entry is None or entry.epoch != self.epoch:
                model.producers[PRODUCER_ID] = ProducerEntry(self.epoch, -1)
        self.open.clear()
        self.is_open = False

    def produce(self, partition: int, batch: bytes, *, protocol: int) -> PartitionProduceResponse:
        """A transactional batch, whose partition is in the transaction, or in version 2 becomes part of it."""
        epoch = read_header(batch).producer_epoch
        if epoch < self.epoch:
            return refusal(ErrorCode.INVALID_PRODUCER_EPOCH)
        if protocol == 2:
            self.add(epoch, partition)
        elif partition not in self.open:
            return refusal(ErrorCode.INVALID_TXN_STATE)
        return self.partitions[partition].produce(batch)
