"""The broker's log: forged lines, floods of one client, and levels."""

import io
import logging

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo
from oncelog.broker.process.log_output import BURST, MOST_WINDOWS, LineKey, LogHandler, RepeatedLines

TEMPLATE = "Closing the connection of %s: %s"


class Log:
    """A log of its own, and what it wrote."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = LogHandler(self.stream)

    def write(
        self, message: str, *arguments: object, level: int = logging.WARNING, at: float = 0.0, exc: bool = False
    ) -> None:
        info = None
        if exc:
            try:
                raise ValueError(message)
            except ValueError as error:
                info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("test", level, "", 0, message, arguments, info)
        record.created = at
        self.handler.handle(record)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def connection(host: str = "10.0.0.1", port: int = 1) -> ConnectionInfo:
    return ConnectionInfo(client_host=host, client_port=port, listener_name="PLAINTEXT")


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("g\n[2026-01-01 00:00:00,000] ERROR disk failed (oncelog.broker.start)", r"g\n[2026-01-01"),
        ("a\rb", r"a\rb"), ("a\x1b[2Jb", r"a\x1b[2Jb"), ("a\x07b", r"a\x07b"), ("a\x00b", r"a\x00b"),
        ("a\x85b", r"a\x85b"), ("a\x9bb", r"a\x9bb"), ("a\u2028b", r"a\u2028b"), ("a\u202eb", r"a\u202eb"),
        ("a\x7fb", r"a\x7fb"), ("a\ud800b", r"a\ud800b"), ("a\x0bb\x0cc", r"a\x0bb\x0cc"),
    ],
)  # fmt: skip
def test_log_line_with_control_characters_is_one_printable_line(hostile: str, shown: str) -> None:
    log = Log()
    log.write("Member of group %s leaves", hostile)
    (line,) = log.lines
    assert f"Member of group {shown}" in line
    assert line.isprintable()


def test_log_line_keeps_letters_of_any_language() -> None:
    log = Log()
    log.write("Gruppe %s", "größe-グループ")
    assert "größe-グループ" in log.lines[0]


def test_log_line_that_is_too_long_is_cut_and_says_its_length() -> None:
    log = Log()
    log.write("reason: %s", "x" * 65_000)
    (line,) = log.lines
    assert len(line) < 2_200
    assert "(65008 characters)" in line


def test_traceback_with_a_forged_line_is_indented_and_bounded() -> None:
    log = Log()
    log.write("[2026-01-01] ERROR forged\x1b", exc=True)
    first, *others = log.lines
    assert first.startswith("[")
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    log = Log()
    log.write("y" * 1_000_000, exc=True)
    assert sum(map(len, log.lines)) < 30_000


def test_repeated_lines_of_one_peer_are_suppressed_and_counted() -> None:
    log = Log()
    for count in range(100_000):
        log.write(TEMPLATE, connection(port=count % 60_000), f"malformed {count}", at=5.0 + count / 100_000)
    assert len(log.lines) == BURST
    log.write("something else", at=16.0)
    assert len(log.lines) == BURST + 2
    suppressed = (
        f"{100_000 - BURST} more lines like this of 10.0.0.1 were suppressed within 10 s; the last: Closing the"
    )
    assert suppressed in log.lines[-2]
    assert log.lines[-2].partition(" (")[0].endswith(": malformed 99999")
    log.write(TEMPLATE, connection(), "again", at=17.0)
    assert len(log.lines) == BURST + 3


def test_repeated_lines_of_other_peers_and_templates_are_written() -> None:
    log = Log()
    for _ in range(BURST):
        log.write(TEMPLATE, connection(), "x")
    log.write(TEMPLATE, connection("10.0.0.2"), "x")
    log.write("Refused a connection of %s", connection())
    assert len(log.lines) == BURST + 2


def test_repeated_lines_without_a_peer_and_of_debug_are_written() -> None:
    log = Log()
    for _ in range(3 * BURST):
        log.write("%s-%d is led", "t", 0)
        log.write(TEMPLATE, connection(), "x", level=logging.DEBUG)
    assert len(log.lines) == 6 * BURST


def test_closing_the_log_says_what_was_suppressed() -> None:
    log = Log()
    for _ in range(BURST + 3):
        log.write(TEMPLATE, connection(), "x")
    log.handler.close()
    assert "3 more lines like this of 10.0.0.1" in log.lines[-1]


def test_windows_of_repeated_lines_are_bounded() -> None:
    repeated = RepeatedLines()
    for number in range(10 * MOST_WINDOWS):
        repeated.ended(1.0)
        record = logging.LogRecord("n", logging.WARNING, "", 0, "t", (), None)
        assert repeated.admit(LineKey("n", logging.WARNING, "t", f"10.0.{number}"), record, 1.0)
    assert len(repeated._windows) <= MOST_WINDOWS
