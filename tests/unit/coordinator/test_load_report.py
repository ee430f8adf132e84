"""How many partitions were loaded: one line for all that were loaded together."""

import logging

import pytest

from oncelog.coordinator.load_report import LoadReport


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_loads_are_one_line_of_info_and_one_of_debug_each(caplog: pytest.LogCaptureFixture) -> None:
    report = LoadReport("__consumer_offsets", "groups", logging.getLogger("test"))
    with caplog.at_level(logging.DEBUG):
        for index, count in {28: 1, 9: 2, 3: 0}.items():
            report.note(index, count)
        report.conclude()
        report.conclude()
        report.note(5, 1)
        report.conclude()
    assert messages(caplog, logging.INFO) == [
        "Loaded 3 groups of __consumer_offsets, partitions 9, 28",
        "Loaded 1 groups of __consumer_offsets, partition 5",
    ]
    assert len(messages(caplog, logging.DEBUG)) == 4


def test_partitions_that_hold_nothing_are_no_line_of_info(caplog: pytest.LogCaptureFixture) -> None:
    report = LoadReport("__consumer_offsets", "groups", logging.getLogger("test"))
    with caplog.at_level(logging.INFO):
        report.note(9, 0)
        report.conclude()
    assert not caplog.records
