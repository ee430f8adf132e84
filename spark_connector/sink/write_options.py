"""The options of writing, validated all at once together with the columns, into ``WriteOptions``. Pure.

Names and defaults are those of Spark's Kafka sink, with more options for exactly-once. A stream's sink is named by
``transactionalIdPrefix``, or after the query in its checkpoint (``sink_name``); a batch's by ``txnAppId`` and its
topic. Without these a batch has no name, and no later driver can complete it after a crash.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.protocol.records.compression import Compression
from oncelog.spark_connector.option_names import READING_ONLY
from oncelog.spark_connector.options import MAX_INT32, OptionReader
from oncelog.spark_connector.process_client import ClientSettings
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.target_topics import STATE_TOPIC, target_problem, topic_problem

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's default of ``transaction.max.timeout.ms``, the longest that brokers allow."""
_DEFAULT_BATCH_BYTES: Final = 512 * 1024
_DEFAULT_REQUEST_BYTES: Final = 4 * 1024 * 1024
_DEFAULT_BUFFER_BYTES: Final = 32 * 1024 * 1024
_LEAST_BATCH_BYTES: Final = 512
_LONGEST_NAME: Final = 200
_TEXT_OR_BYTES: Final = ("string", "binary")
_COLUMN_TYPES: Final = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
_REFUSED: Final = {
    "kafka.transactional.id": "ids are made by the sink: transactionalIdPrefix is what they begin with",
    "kafka.transaction.timeout.ms": "is transactionTimeoutMs here",
    "kafka.key.serializer": "keys are bytes or strings: convert the column",
    "kafka.value.serializer": "values are bytes or strings: convert the column",
    "kafka.partitioner.class": "rows go where the column partition says, else where Java's default partitioner would "
    "send them",
    "kafka.interceptor.classes": "there are no interceptors",
}
_CATALOG_HINT: Final = (
    ". For INSERT INTO a table of the catalog: Spark passes no options of the table; write INSERT INTO … WITH "
    "(`kafka.bootstrap.servers` = '…', topic = '…')"
)
_WITHOUT_EFFECT: Final = ("includeHeaders", "kafka.linger.ms", "kafka.metadata.max.age.ms")


class Guarantee(Enum):
    """``delivery.guarantee``."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """One sink's options. Picklable: tasks get them."""

    client: ClientSettings
    topic: str | None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    sink: str | None
    """The prefix of its transactional ids; of a batch without ``txnAppId`` what a random name is added to.

    None without ``transactionalIdPrefix``: for such a batch, and for a stream until its checkpoint was read
    (``sink_name``).
    """
    former: FormerNames | None = None
    """The names under which this sink may have written before."""
    checkpoint: str = ""
    """``checkpointLocation`` of a stream, if it is given."""
    application: str | None = None
    """``txnAppId``, and with it ``version``, of a batch."""
    version: int = 0
    state_topic: str = STATE_TOPIC
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    fail_on_loss: bool = True
    fail_on_missing_decisions: bool = True
    """``failOnMissingDecisions``: refuse a later batch of a stream if the sink has no record of an earlier one."""
    fail_on_difference: bool = True
    """``failOnDifferentRows``: refuse a batch that is written already and comes again with other rows."""
    compression: Compression = Compression.NONE
    batch_bytes: int = _DEFAULT_BATCH_BYTES
    request_bytes: int = _DEFAULT_REQUEST_BYTES
    buffer_bytes: int = _DEFAULT_BUFFER_BYTES
    delivery_timeout_ms: int = 120_000

    def producer_config(self, transactional_id: str | None) -> ProducerConfig:
        """Return the settings of one task's producer."""
        request_timeout_ms = int(self.client.request_seconds * 1000)
        return ProducerConfig(
            bootstrap=self.client.bootstrap,
            client_id=self.client.client_id,
            transactional_id=transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            compression=self.compression.name.lower(),  # type: ignore[arg-type]  # A Literal of these names.
            linger_ms=0,
            batch_bytes=self.batch_bytes,
            buffer_bytes=max(self.buffer_bytes, self.request_bytes),
            max_request_bytes=self.request_bytes,
            delivery_timeout_ms=max(self.delivery_timeout_ms, request_timeout_ms),
            request_timeout_ms=request_timeout_ms,
        )


def stream_write_options(options: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> WriteOptions:
    """Return the options of ``writeStream``; ``columns`` are (name, Spark's type). Raises ``OptionsInvalid``."""
    reader = OptionReader(options)
    guarantee = _guarantee(reader)
    prefix = _name(reader, "transactionalIdPrefix")
    checkpoint = options.get("checkpointlocation") or options.get("checkpointLocation")
    if prefix is None and checkpoint is None and guarantee is Guarantee.EXACTLY_ONCE:
        reader.complain(
            "transactionalIdPrefix: is required where checkpointLocation is not given as an option of the query; it "
            "may be any name that no other query uses"
        )
    for name in ("txnAppId", "txnVersion"):
        reader.refuse(name, "is for batches, in foreachBatch for example: a stream knows its own")
    written = _finish(reader, columns, guarantee, prefix, None, 0)
    return replace(written, checkpoint=checkpoint or "")


def batch_write_options(
    options: Mapping[str, str], columns: Sequence[tuple[str, str]], *, overwrite: bool
) -> WriteOptions:
    """Return the options of ``write``. Raises ``OptionsInvalid``."""
    reader = OptionReader(options)
    reader.ignore(READING_ONLY)
    guarantee = _guarantee(reader)
    if overwrite:
        reader.complain('mode: "overwrite" cannot be: records of a topic stay; it may be "append"')
    prefix = _name(reader, "transactionalIdPrefix")
    application = reader.text("txnAppId", None)
    version = reader.integer("txnVersion", None, minimum=0)
    if (application is None) != (version is None):
        reader.complain("txnAppId, txnVersion: are given together, or neither; they may be any text and a whole number")
    if guarantee is Guarantee.AT_LEAST_ONCE:
        for name in reader.given(("txnAppId", "txnVersion")):
            reader.complain(
                f"{name}: has no effect with delivery.guarantee=at-least-once, which writes a version as often as it "
                "is saved; leave one of the two out"
            )
        if prefix is not None:
            reader.complain("transactionalIdPrefix: has no use with delivery.guarantee=at-least-once")
    sink, former = prefix, None
    if application is not None:
        sink = digest(f"{application}\0{reader.text('topic', '')}")
        if prefix is not None:
            sink = f"{prefix}.{sink}"
            former = FormerNames(query=application, names=(prefix,), was_named_by_location=False)
    return replace(_finish(reader, columns, guarantee, sink, application, version or 0), former=former)


def _guarantee(reader: OptionReader) -> Guarantee:
    return reader.choice("delivery.guarantee", {each.value: each for each in Guarantee}, Guarantee.EXACTLY_ONCE)


def _name(reader: OptionReader, name: str) -> str | None:
    def parse(text: str) -> str:
        if not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
            raise ValueError
        return text

    return reader.parsed(name, parse, f"any printable text of up to {_LONGEST_NAME} characters", None)


def digest(text: str) -> str:
    """Return sixteen characters that represent a text in a sink's name."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]


def _finish(
    reader: OptionReader,
    columns: Sequence[tuple[str, str]],
    guarantee: Guarantee,
    sink: str | None,
    application: str | None,
    version: int,
) -> WriteOptions:
    state_topic = reader.parsed("stateTopic", _state_topic, "the name of another topic", STATE_TOPIC)
    topic = reader.parsed("topic", partial(_topic, state_topic), "the name of another topic", None)
    _check_columns(reader, columns, names_topic=reader.has("topic"))
    for name, reason in _REFUSED.items():
        reader.refuse(name, reason)
    reader.given(_WITHOUT_EFFECT)
    reader.choice("kafka.acks", {"all": None, "-1": None}, None)
    reader.choice("kafka.enable.idempotence", {"true": None}, None)
    reader.integer("kafka.max.in.flight.requests.per.connection", 5, minimum=1, maximum=5)
    reader.integer("kafka.retries", None, minimum=1, maximum=MAX_INT32)
    request_bytes = reader.integer(
        "kafka.max.request.size", _DEFAULT_REQUEST_BYTES, minimum=_LEAST_BATCH_BYTES, maximum=MAX_INT32
    )
    written = WriteOptions(
        client=reader.client_settings("oncelog-spark-sink", patience="kafka.max.block.ms", hint=_CATALOG_HINT),
        topic=topic,
        guarantee=guarantee,
        sink=sink,
        application=application,
        version=version,
        state_topic=state_topic,
        transaction_timeout_ms=reader.integer(
            "transactionTimeoutMs", DEFAULT_TRANSACTION_TIMEOUT_MS, minimum=1000, maximum=MAX_INT32
        ),
        fail_on_loss=reader.boolean("failOnDataLoss", True),
        fail_on_missing_decisions=reader.boolean("failOnMissingDecisions", True),
        fail_on_difference=reader.boolean("failOnDifferentRows", True),
        compression=reader.choice(
            "kafka.compression.type", {each.name.lower(): each for each in Compression}, Compression.NONE
        ),
        batch_bytes=reader.integer(
            "kafka.batch.size", _DEFAULT_BATCH_BYTES, minimum=_LEAST_BATCH_BYTES, maximum=MAX_INT32
        ),
        request_bytes=request_bytes,
        buffer_bytes=reader.integer("kafka.buffer.memory", _DEFAULT_BUFFER_BYTES, minimum=1, maximum=MAX_INT32),
        delivery_timeout_ms=reader.integer("kafka.delivery.timeout.ms", 120_000, minimum=1, maximum=MAX_INT32),
    )
    reader.finish()
    return written


def _topic(state_topic: str, text: str) -> str:
    if reason := target_problem(text, state_topic):
        raise ValueError(reason)
    return text


def _state_topic(text: str) -> str:
    if reason := topic_problem(text):
        raise ValueError(reason)
    return text


def _check_columns(reader: OptionReader, columns: Sequence[tuple[str, str]], *, names_topic: bool) -> None:
    """Check the columns of the sink; others are left out, as by Spark's own sink."""
    found = dict(columns)
    if "value" not in found:
        reader.complain(f"column value: is missing; there are {', '.join(found) or 'none'}")
    if not names_topic and "topic" not in found:
        reader.complain("topic: is required where the rows have no column topic; it may be the name of a topic")
    for name, types in _COLUMN_TYPES.items():
        if name in found and found[name] not in types:
            reader.complain(f"column {name}: is {found[name]}; it may be {' or '.join(types)}")
