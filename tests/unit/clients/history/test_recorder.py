"""What a program notes is what the history has."""

from itertools import count

from oncelog.clients.history.file_format import read_operations
from oncelog.clients.history.history import History
from oncelog.clients.history.operation import Kind, Outcome, Read, Send
from oncelog.clients.history.recorder import Recorder
from oncelog.clients.history.verdict import judge


def test_recorded_operations_have_what_was_noted() -> None:
    times = count()
    recorder = Recorder(lambda: next(times))
    recorder.record("w", Kind.SUBSCRIBE, ["in"])
    transaction = recorder.begin("w", Kind.TXN)
    transaction.read("in", 4, "1")
    first, _ = transaction.send("out", "f1"), transaction.send("out", "f2")
    transaction.acknowledged(first, 7)
    transaction.commit_position("g", "in", 5)
    transaction.moved("in")
    transaction.end(Outcome.FAIL, "aborted")
    subscribed, failed = recorder.history().operations
    assert (subscribed.kind, subscribed.partitions, subscribed.outcome) == (Kind.SUBSCRIBE, ("in",), Outcome.OK)
    assert (failed.start, failed.end, failed.outcome, failed.error) == (2, 3, Outcome.FAIL, "aborted")
    assert failed.sends == (Send("out", 7, "f1"), Send("out", None, "f2"))
    assert failed.reads == (Read("in", 4, "1"),)
    assert (failed.positions, failed.moved) == ({"g": {"in": 5}}, ("in",))


def test_operation_without_an_end_may_have_happened() -> None:
    recorder = Recorder(lambda: 5)
    recorder.begin("w", Kind.SEND).send("a", "x")
    (operation,) = recorder.history().operations
    assert (operation.outcome, operation.end, operation.start) == (Outcome.INFO, None, 5)


def test_recorded_lines_are_a_file_with_the_same_verdict() -> None:
    times = count()
    recorder = Recorder(lambda: next(times))
    send = recorder.begin("w", Kind.SEND)
    send.send("a", "x")
    send.end(Outcome.OK)
    recorder.record_final({"a": []}, {"g": {"a": 0}})
    again = History(read_operations(recorder.lines(), "recorded"))
    assert judge(again).findings.keys() == judge(recorder.history()).findings.keys() != set()
    assert again.final_positions("g") == {"a": 0}
