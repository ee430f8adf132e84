"""The time after which a coordinator counts as deserted, and the rate limit of its log lines."""

import logging

import pytest

from oncelog.broker.replication.deserted_coordinators import DesertedCoordinators, Line, desertion_ms
from oncelog.broker.replication.follower_state import NEVER
from oncelog.protocol.topic_partition import TopicPartition

FIRST, SECOND, THIRD = (TopicPartition("__consumer_offsets", index) for index in range(3))


def text(line: Line | None) -> str:
    assert line is not None
    return line.text


@pytest.mark.parametrize(
    ("silence_ms", "fetch_wait_ms", "expected"),
    [(1_500, 500, 1_500), (1_500, 2_000, 4_000), (10, 500, 1_000)],
)
def test_desertion_time_is_at_least_two_fetch_waits(silence_ms: int, fetch_wait_ms: int, expected: int) -> None:
    assert desertion_ms(silence_ms, fetch_wait_ms) == expected


def test_desertion_without_limit_excludes_follower_that_never_fetched() -> None:
    assert desertion_ms(0, 500) > -NEVER


def test_warning_names_partition_and_followers_and_comes_once() -> None:
    coordinators = DesertedCoordinators()
    assert coordinators.update(1_000, {}) is None
    line = coordinators.update(3_000, {FIRST: {2: 1_400, 3: NEVER}})
    assert line is not None
    assert line.level == logging.WARNING
    assert "__consumer_offsets-0: " in line.text
    assert "broker 2 last fetched 1.6 s ago, broker 3 never fetched" in line.text
    assert coordinators.update(3_500, {FIRST: {2: 1_400, 3: NEVER}}) is None
    assert coordinators.update(60_000, {FIRST: {2: 1_400, 3: NEVER}}) is None
    line = coordinators.update(60_400, {})
    assert line is not None
    assert line.level == logging.INFO
    assert "__consumer_offsets-0: " in line.text
    assert "after 59.0 s" in line.text
    assert coordinators.update(60_500, {}) is None


def test_warning_of_fifty_partitions_is_one_line_with_latest_fetch_of_each_follower() -> None:
    coordinators = DesertedCoordinators()
    heard = {TopicPartition("__consumer_offsets", index): {2: 1_000 + index, 3: 1_100} for index in range(50)}
    warning = text(coordinators.update(3_000, heard))
    assert "__consumer_offsets-0, __consumer_offsets-1, __consumer_offsets-2 and 47 more" in warning
    assert "broker 2 last fetched 2.0 s ago, broker 3 last fetched 1.9 s ago" in warning
    assert "and 47 more" in text(coordinators.update(4_000, {}))


def test_later_partitions_share_a_line_after_ten_seconds() -> None:
    coordinators = DesertedCoordinators()
    first, second, third = {FIRST: {2: 0}}, {SECOND: {3: 500}}, {THIRD: {3: 600}}
    coordinators.update(2_000, first)
    assert coordinators.update(3_000, {**first, **second}) is None
    line = text(coordinators.update(12_000, {**first, **second, **third}))
    assert "__consumer_offsets-0" not in line
    assert "__consumer_offsets-1, __consumer_offsets-2" in line


def test_intermittent_silence_is_logged_every_ten_seconds() -> None:
    coordinators = DesertedCoordinators()
    silent = {FIRST: {2: 0}}
    lines = [coordinators.update(now_ms, silent if now_ms % 2_000 else {}) for now_ms in range(1_000, 41_000, 500)]
    warnings = [line for line in lines if line is not None and line.level == logging.WARNING]
    assert len(warnings) == 4
    assert len([line for line in lines if line is not None]) == 8


def test_short_silence_within_ten_seconds_of_a_warning_is_not_logged() -> None:
    coordinators = DesertedCoordinators()
    coordinators.update(2_000, {FIRST: {2: 0}})
    coordinators.update(3_000, {})
    assert coordinators.update(5_000, {FIRST: {2: 3_000}}) is None
    assert coordinators.update(6_000, {}) is None
    assert coordinators.update(12_000, {FIRST: {2: 9_000}}) is not None
