"""What a request crosses, from the calls that a profiler saw."""

from tests.house.request_path import Crossing, Event, crossing


def calls(*files: str) -> list[Event]:
    """Return nested calls of functions in these files."""
    return [*(("call", file) for file in files), *(("return", file) for file in reversed(files))]


def test_crossing_nested_calls_returns_files_moves_and_depth() -> None:
    events = [("received", ""), *calls("a", "b", "b", "c"), *calls("a"), ("sent", "")]
    assert crossing(events) == Crossing(moves=3, files=["a", "b", "c"], depth=4)


def test_crossing_calls_before_receipt_and_after_response_are_left_out() -> None:
    events = [*calls("timer"), ("received", ""), *calls("a"), ("sent", ""), *calls("b"), ("sent", ""), *calls("timer")]
    assert crossing(events) == Crossing(moves=1, files=["a", "b"], depth=1)


def test_crossing_generated_code_has_no_file_and_adds_no_frame() -> None:
    events = [("received", ""), *calls("a", "", "a", "", "b"), ("sent", "")]
    assert crossing(events) == Crossing(moves=1, files=["a", "b"], depth=3)


def test_crossing_several_turns_of_the_loop_are_one_request() -> None:
    events = [("received", ""), *calls("a"), *calls("", "b"), ("received", ""), *calls("c", "d"), ("sent", "")]
    assert crossing(events) == Crossing(moves=3, files=["a", "b", "c", "d"], depth=2)
