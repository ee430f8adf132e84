"""The sink's one record in the state topic: its generation, and the batch that was decided last. Pure.

The topic is compacted; the key is the sink's name, the value JSON (compressed with the batch)::

    {"v": 1, "generation": 3, "query": "<query id>", "batch": 41, "driver": [producer id, epoch],
     "transactions": [["<what follows the sink's name in the id>", producer id, epoch, protocol version], …],
     "settled": [producer id, epoch, protocol version], "topic": "orders", "offsets": "<lines of Spark's offset log>",
     "run": "<id>", "planned": "<time>", "content": [rows, digest]}

In a transaction that was begun under a former name of the sink, the first text is empty and a fifth is the whole id
(``former_names``). The last six fields may be missing; former releases neither write nor read them. With ``settled``
all transactions of the batch were committed, and none is listed: coordinators expire ids that are not used for a week,
and could not describe them later. It names the driver that wrote it, so the next driver knows whether there was
another in between (``is_followed_by``). ``topic`` and ``offsets`` say what the batch was planned from (``Planned``).
``run`` is the run of a streaming query that has saved the batch, or found it saved, last: a run saves a batch once.
``planned`` is when Spark planned the batch. ``content`` describes its rows (``batch_content``) if the offsets do not
distinguish it from another batch of the same number.

``batch`` counts within ``query``: a checkpoint that was deleted makes a new query, for which nothing is decided yet.
``generation`` grows with every driver that cannot know that it is the only one left of its generation, so a transaction
with an older generation in its id can only be a leftover. (Producer epochs cannot replace it: they restart with each
producer id.) It does not grow if no task of the last driver can be running: brokers expire the transactional ids of a
generation only after a week, so a query that is started for each batch must not have another one each time.
"""

import json
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from oncelog.spark_connector.sink.commit.batch_content import Content
from oncelog.spark_connector.sink.commit.sink_errors import UnreadableState
from oncelog.spark_connector.sink.commit.sink_transactions import Driver, TaskTransaction

_FORMAT: Final = 1
NO_BATCH: Final = -1


class Planned(NamedTuple):
    """What a batch was planned from; a text is empty if the sink cannot read it."""

    topic: str = ""
    """The one topic that all rows go to."""
    offsets: str = ""
    """The offsets at which the batch's sources end."""
    time: str = ""
    """When Spark planned it. A batch that is only run again keeps its time."""
    names_rows: bool = False
    """Whether batches with the same offsets have the same rows. Not recorded: equal offsets are equal in this, too."""

    def difference(self, other: "Planned") -> str:
        """Describe how another plan of the same batch writes other rows; empty if no difference is known."""
        if self.topic and other.topic and self.topic != other.topic:
            return f"for topic {self.topic} and not {other.topic}"
        if self.offsets and other.offsets and self.offsets != other.offsets:
            return f"up to {self.offsets} and not {other.offsets}"
        return ""

    def is_same(self, other: "Planned") -> bool:
        """Return whether another plan that has no ``difference`` is known to have the same rows."""
        if not self.offsets or self.offsets != other.offsets:
            return False
        return other.names_rows or bool(self.time and self.time == other.time)


UNKNOWN_PLAN: Final = Planned()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """The state of one sink. ``decided_by`` is (producer id, epoch) of the driver that wrote the decision."""

    sink: str
    generation: int = 0
    query: str = ""
    batch: int = NO_BATCH
    decided_by: tuple[int, int] = (-1, -1)
    transactions: tuple[TaskTransaction, ...] = ()
    settled_by: tuple[int, int, int] | None = None
    """(producer id, epoch, protocol version) of the driver that recorded that every transaction was committed."""
    planned: Planned = UNKNOWN_PLAN
    run: str = ""
    content: Content | None = None

    def decides(self, query: str, batch: int) -> bool:
        """Return whether exactly this batch of this query is decided."""
        return self.query == query and self.batch == batch

    def is_beyond(self, query: str, batch: int) -> bool:
        """Return whether a later batch of this query is decided."""
        return self.query == query and self.batch > batch

    @property
    def settled(self) -> bool:
        """Whether every transaction of the batch was committed."""
        return self.settled_by is not None

    def is_followed_by(self, driver: Driver) -> bool:
        """Return whether only ``driver`` has taken over since this was written, in the next epoch.

        Then every earlier permit belongs to a batch that is over. EndTxn with version 2 of the protocol bumps the
        epoch, too; False if the producer id was replaced.
        """
        if self.settled_by is None:
            return False
        producer_id, epoch, version = self.settled_by
        return (driver.producer_id, driver.epoch) == (producer_id, epoch + (2 if version >= 2 else 1))

    def in_next_generation(self) -> "StateRecord":
        """Return the record with the next generation."""
        return replace(self, generation=self.generation + 1)

    def when_settled(self, driver: Driver, version: int) -> "StateRecord":
        """Return the record with which ``driver`` notes that all transactions of the batch were committed."""
        return replace(self, settled_by=(driver.producer_id, driver.epoch, version), transactions=())

    def encode(self) -> bytes:
        """Return the record's value."""
        transactions = [_encoded(self.sink, each) for each in self.transactions]
        fields: dict[str, object] = {
            "v": _FORMAT,
            "generation": self.generation,
            "query": self.query,
            "batch": self.batch,
            "driver": self.decided_by,
            "transactions": transactions,
        }
        if self.settled_by is not None:
            fields["settled"] = self.settled_by
        planned = self.planned
        texts = {"topic": planned.topic, "offsets": planned.offsets, "run": self.run, "planned": planned.time}
        fields |= {name: text for name, text in texts.items() if text}
        if self.content is not None:
            fields["content"] = self.content
        return json.dumps(fields, separators=(",", ":")).encode()


def _decoded_settled(field: list[int] | None) -> tuple[int, int, int] | None:
    if field is None:
        return None
    producer_id, epoch, version = field
    return int(producer_id), int(epoch), int(version)


def _encoded(sink: str, transaction: TaskTransaction) -> list[str | int]:
    whole, *numbers = transaction
    if whole.startswith(f"{sink}."):
        return [whole[len(sink) :], *numbers]
    return ["", *numbers, whole]


def decode_state(sink: str, value: bytes) -> StateRecord:
    """Read a record's value. Raises ``UnreadableState``."""
    try:
        fields = json.loads(value)
        if fields["v"] != _FORMAT:
            raise UnreadableState(f"the state of sink {sink} is of format {fields['v']}: a newer connector wrote it")
        producer_id, epoch = fields["driver"]
        return StateRecord(
            sink=sink,
            generation=int(fields["generation"]),
            query=str(fields["query"]),
            batch=int(fields["batch"]),
            decided_by=(int(producer_id), int(epoch)),
            transactions=tuple(
                TaskTransaction(str(*whole) or sink + str(rest), int(producer), int(epoch), int(version))
                for rest, producer, epoch, version, *whole in fields["transactions"]
            ),
            settled_by=_decoded_settled(fields.get("settled")),
            planned=Planned(
                topic=str(fields.get("topic", "")),
                offsets=str(fields.get("offsets", "")),
                time=str(fields.get("planned", "")),
            ),
            run=str(fields.get("run", "")),
            content=Content(*map(int, fields["content"])) if "content" in fields else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableState(f"the state of sink {sink} cannot be read: {error}") from error
