"""The options of reading, validated all at once into ``ReadOptions``. Pure.

The names, defaults and precedences are those of Spark's Kafka source (its integration guide), with three differences:
``kafka.isolation.level`` defaults to ``read_committed``, unknown options are refused, and there are ``columns``,
``pushFilters`` and ``groupId``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from oncelog.spark_connector.columnar.columns import NAMES, WITHOUT_HEADERS, Columns, parse_columns
from oncelog.spark_connector.offset_ranges import listed
from oncelog.spark_connector.option_names import WRITING_ONLY
from oncelog.spark_connector.options import MAX_INT32, OptionReader, OptionsInvalid
from oncelog.spark_connector.process_client import ClientSettings
from oncelog.spark_connector.reading.offset_bounds import (
    EARLIEST,
    FROM_EARLIEST,
    FROM_LATEST,
    LATEST,
    Bound,
    BoundParser,
    Offsets,
    Timestamp,
    Timestamps,
    parse_timestamps,
    reversed_times,
)
from oncelog.spark_connector.reading.topic_selection import (
    TopicSelection,
    parse_assign,
    parse_subscribe,
    parse_subscribe_pattern,
)
from oncelog.spark_connector.target_topics import STATE_TOPIC

_MEBIBYTE: Final = 1024 * 1024
_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_REFUSED: Final = {
    "kafka.auto.offset.reset": "is decided by startingOffsets",
    "kafka.key.deserializer": "keys are bytes: cast the column",
    "kafka.value.deserializer": "values are bytes: cast the column",
    "kafka.enable.auto.commit": "offsets are in the checkpoint; groupId also commits them to a group",
    "kafka.interceptor.classes": "there are no interceptors",
    "kafka.client.rack": "this client reads from leaders only",
}
_WITHOUT_EFFECT: Final = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafka.group.id",
    "kafka.allow.auto.create.topics",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.bytes",
    "kafka.fetch.min.bytes",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.session.timeout.ms",
    "kafka.partition.assignment.strategy",
)
"""Options of Spark's Kafka source or of Kafka's consumer. Reading joins no group, and retries are limited by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a task fetches. Picklable into tasks."""

    read_committed: bool = True
    max_partition_bytes: int = 4 * _MEBIBYTE
    """The size of one response; a larger first batch is sent nevertheless."""
    max_wait_ms: int = 500
    check_crcs: bool = True
    patience_seconds: float = 120.0
    """The time without progress after which a task fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a batch or a stream reads, and how."""

    client: ClientSettings
    fetch: FetchSettings
    selection: TopicSelection
    columns: Columns
    start: Bound
    end: Bound
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_seconds: float
    group_id: str | None
    push_filters: bool
    metadata_max_age_seconds: float


def read_options(options: Mapping[str, str], *, streaming: bool, spark_keeps_plans_apart: bool = False) -> ReadOptions:
    """Return the options of a read. Raises ``OptionsInvalid`` with everything that is wrong.

    ``spark_keeps_plans_apart``: whether each scan of a DataFrame has a read plan of its own (``reader``).
    """
    reader = OptionReader(options)
    client = reader.client_settings("oncelog-spark", patience="kafka.default.api.timeout.ms")
    selection = _selection(reader)
    start = _start(reader, streaming)
    end = _end(reader, streaming)
    if too_late := reversed_times(start, end):
        reader.complain(f"startingOffsetsByTimestamp: is after endingOffsetsByTimestamp in {listed(too_late)}")
    max_offsets, min_offsets, delay = _trigger(reader)
    for name, reason in _REFUSED.items():
        reader.refuse(name, reason)
    reader.given(_WITHOUT_EFFECT)
    reader.ignore(WRITING_ONLY)
    read = ReadOptions(
        client=client,
        fetch=_fetch_settings(reader),
        selection=selection,
        columns=_columns(reader),
        start=start,
        end=end,
        fail_on_data_loss=reader.boolean("failOnDataLoss", True),
        min_partitions=reader.integer("minPartitions", None, minimum=1, maximum=MAX_INT32),
        max_records_per_partition=reader.integer("maxRecordsPerPartition", None, minimum=1),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_seconds=delay,
        group_id=_group_id(reader, streaming),
        push_filters=_push_filters(reader, streaming, spark_keeps_plans_apart),
        metadata_max_age_seconds=reader.milliseconds("kafka.metadata.max.age.ms", 1.0),
    )
    reader.finish()
    return read


def read_columns(options: Mapping[str, str]) -> Columns:
    """Return the columns, for the schema: Spark requests it before a reader. Raises ``OptionsInvalid``."""
    reader = OptionReader(options)
    columns = _columns(reader)
    if reader.problems:
        raise OptionsInvalid(reader.problems)
    return columns


def _selection(reader: OptionReader) -> TopicSelection:
    given = reader.given(_SELECTIONS)
    if len(given) != 1:
        was = f"{' and '.join(given)} are given" if given else "none is given"
        reader.complain(f"assign, subscribe, subscribePattern: one of them is required, and {was}")
    nothing: TopicSelection = parse_subscribe("-")
    assigned = reader.parsed("assign", parse_assign, 'JSON as {"topic": [0, 1]}', nothing)
    subscribed = reader.parsed("subscribe", parse_subscribe, "topics as a,b,c", assigned)
    parse_pattern = partial(parse_subscribe_pattern, state_topic=reader.text("stateTopic", STATE_TOPIC))
    return reader.parsed("subscribePattern", parse_pattern, "a regular expression", subscribed)


def _start(reader: OptionReader, streaming: bool) -> Bound:
    named = {"earliest": FROM_EARLIEST} | ({"latest": FROM_LATEST} if streaming else {})
    parser = BoundParser("startingOffsets", named, EARLIEST)
    default: Bound = FROM_LATEST if streaming else FROM_EARLIEST
    offsets = reader.parsed("startingOffsets", parser, parser.valid, default)
    if not streaming and isinstance(offsets, Offsets) and LATEST in offsets.offsets.values():
        reader.complain("startingOffsets: -1 (latest) is for streams; a batch that starts at the end reads nothing")
    strategies = {"error": False, "latest": True}
    or_latest = reader.choice("startingOffsetsByTimestampStrategy", strategies, False)
    return _by_time(reader, "startingTimestamp", "startingOffsetsByTimestamp", offsets, or_latest)


def _end(reader: OptionReader, streaming: bool) -> Bound:
    if streaming:
        for name in _ENDINGS:
            reader.refuse(name, "is for batches: a stream has no end (Trigger.AvailableNow ends at what is there)")
        return FROM_LATEST
    parser = BoundParser("endingOffsets", {"latest": FROM_LATEST}, LATEST)
    default: Bound = FROM_LATEST
    offsets = reader.parsed("endingOffsets", parser, parser.valid, default)
    return _by_time(reader, "endingTimestamp", "endingOffsetsByTimestamp", offsets, True)


def _by_time(reader: OptionReader, one: str, each: str, otherwise: Bound, or_latest: bool) -> Bound:
    """Return a bound: one timestamp overrides timestamps by partition, and these override offsets."""
    timestamp = reader.integer(one, None, minimum=0)
    timestamps = reader.parsed(
        each, parse_timestamps, 'JSON as {"topic": {"0": 1700000000000}}, in ms since the epoch', None
    )
    if timestamp is not None:
        return Timestamp(one, timestamp, or_latest)
    return otherwise if timestamps is None else Timestamps(each, timestamps, or_latest)


def _trigger(reader: OptionReader) -> tuple[int | None, int | None, float]:
    most = reader.integer("maxOffsetsPerTrigger", None, minimum=1)
    least = reader.integer("minOffsetsPerTrigger", None, minimum=1)
    if most is not None and least is not None and least > most:
        reader.complain(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
    delay = reader.parsed("maxTriggerDelay", _parse_duration, "a duration as 500ms, 90s, 15m, 1h or 1d", 900.0)
    return most, least, delay


def _parse_duration(text: str) -> float:
    """Parse a duration into seconds. A number without a unit is milliseconds, as in Spark."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip()[len(number) :] or "ms"
    if unit not in _DURATION_UNITS or not number.strip().isdecimal():
        raise ValueError
    return int(number) * _DURATION_UNITS[unit]


def _columns(reader: OptionReader) -> Columns:
    with_headers = reader.boolean("includeHeaders", False)
    default = Columns(NAMES if with_headers else WITHOUT_HEADERS)
    columns = reader.parsed("columns", parse_columns, f"some of {','.join(NAMES)}", default)
    if reader.has("includeHeaders") and reader.has("columns") and with_headers != ("headers" in columns):
        reader.complain("includeHeaders: contradicts columns; leave it out, columns decides")
    return columns


def _fetch_settings(reader: OptionReader) -> FetchSettings:
    level = reader.choice("kafka.isolation.level", {"read_committed": True, "read_uncommitted": False}, True)
    default = FetchSettings()
    return FetchSettings(
        read_committed=level,
        max_partition_bytes=reader.integer(
            "kafka.max.partition.fetch.bytes", default.max_partition_bytes, minimum=1, maximum=128 * _MEBIBYTE
        ),
        max_wait_ms=reader.integer("kafka.fetch.max.wait.ms", default.max_wait_ms, minimum=0, maximum=MAX_INT32),
        check_crcs=reader.boolean("kafka.check.crcs", default.check_crcs),
        patience_seconds=reader.milliseconds("kafkaConsumer.pollTimeoutMs", default.patience_seconds),
    )


def _group_id(reader: OptionReader, streaming: bool) -> str | None:
    if not streaming:
        reader.refuse("groupId", "is for streams: a batch commits no offsets")
    return reader.text("groupId", None)


def _push_filters(reader: OptionReader, streaming: bool, spark_keeps_plans_apart: bool) -> bool:
    if streaming:
        reader.refuse("pushFilters", "is for batches: Spark pushes no filters into a stream")
        return False
    wanted = reader.boolean("pushFilters", False)
    if wanted and not spark_keeps_plans_apart:
        reader.complain(
            "pushFilters: cannot be true with this version of Spark, which reads a DataFrame, view or table that is "
            "used twice by the filter that was pushed last; leave it out, and narrow the read by assign, "
            "startingOffsets, endingOffsets, startingTimestamp or endingTimestamp"
        )
    return wanted
