"""Finds a sink's record: which partition of the state topic is its home. Decides by the log, not by the topic's size.

A new sink's home is where its name hashes to among the partitions that there are then. Partitions may be added later,
and the name hashes to another one then; so a record that is there stays the sink's home for ever. A driver that has
taken over reads the partition that most likely has the record, and uses it only if it is provably the newest, because
the driver that wrote it was the last one before this (``StateRecord.is_followed_by``). Otherwise, as at the first start
and after a crash, it looks in every partition. A former release always hashes among the partitions that it knows of, so
there may be several records; ``newest`` chooses the one that counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from oncelog.clients.producer.partitioner import partition_for_key
from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.sink.commit.sink_broker import SinkBroker
from oncelog.spark_connector.sink.commit.sink_transactions import Driver
from oncelog.spark_connector.sink.commit.state_record import StateRecord


class Found(NamedTuple):
    """The newest record of a sink, None if there is none, and the partition of the sink's records."""

    state: StateRecord | None
    home: TopicPartition


def first_home(sink: str, partitions: Sequence[TopicPartition]) -> TopicPartition:
    """Return the home of a sink that has no record yet."""
    return sorted(partitions)[partition_for_key(sink.encode(), len(partitions))]


async def find_state(broker: SinkBroker, sink: str, driver: Driver) -> Found:
    """Find the record of a sink that ``driver`` has taken over: older drivers cannot write any more."""
    partitions = await broker.state_partitions()
    likely = broker.known_home(sink)
    if likely not in partitions:
        likely = first_home(sink, partitions)
    state = await broker.read_state(sink, likely)
    if state is not None and state.is_followed_by(driver):
        found = Found(state, likely)
    else:
        records = [] if state is None else [Found(state, likely)]
        for home in partitions:
            if home != likely and (other := await broker.read_state(sink, home)) is not None:
                records.append(Found(other, home))
        found = newest(records) or Found(None, likely)
    broker.keep_home(sink, found.home)
    return found


def newest(records: Iterable[Found]) -> Found | None:
    """Return the record that counts, with the latest generation of all: so no transactional id is used again."""
    records = list(records)
    if not records:
        return None
    found = reduce(lambda one, other: other if _is_newer(other.state, one.state) else one, records)
    generation = max(each.state.generation for each in records if each.state is not None)
    assert found.state is not None
    return found._replace(state=replace(found.state, generation=generation))


def _is_newer(one: StateRecord | None, other: StateRecord | None) -> bool:
    """Return whether ``one`` counts, not ``other``. Of one query, the later batch counts: it is never written again."""
    if one is None or other is None:
        return other is None
    if one.query == other.query and one.batch != other.batch:
        return one.batch > other.batch
    (producer_id, epoch), (other_id, other_epoch) = _writer(one), _writer(other)
    if producer_id == other_id:
        return epoch > other_epoch
    return one.batch > other.batch


def _writer(state: StateRecord) -> tuple[int, int]:
    """Return (producer id, epoch) of the last driver that the record names."""
    return state.decided_by if state.settled_by is None else state.settled_by[:2]
