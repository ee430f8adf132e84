"""Words that hide what is meant, and names of tests."""

import pytest

from tests.house.naming import is_not_subject_first
from tests.house.words import RIDDLES, Page, riddle_places


def test_riddle_places_parts_of_names_and_line_breaks_are_seen() -> None:
    text = "why_disobey(LeaderTerm, is_told)\nNobody is told; what is waited\nfor", "lifetime, goLife"
    found = riddle_places([Page(f"{number}.py", each) for number, each in enumerate(text)])
    assert {name: places for name, places in found.items() if places} == {
        "disobey": ["0.py:1 disobey"],
        "term": ["0.py:1 Leader Term"],
        "told": ["0.py:1 told", "0.py:2 told"],
        "nobody, whoever, somebody": ["0.py:2 Nobody"],
        "waited for": ["0.py:2 is waited for"],
        "life": ["1.py:1 Life"],
    }


@pytest.mark.parametrize(
    "text",
    ["Return the response to the request.", "oncelog.end.txn.answer.ms", "It has waited for room.", "Where it lives."],
)
def test_riddle_places_plain_text_returns_none(text: str) -> None:
    assert riddle_places([Page("page.md", text)]) == {name: [] for name in RIDDLES}


@pytest.mark.parametrize("name", ["test_nobody_listens", "test_a_broker_that_is_gone_is_noticed", "test_produce"])
def test_is_not_subject_first_name_without_subject_or_result_is_true(name: str) -> None:
    assert is_not_subject_first(name)


def test_is_not_subject_first_name_of_subject_condition_and_result_is_false() -> None:
    assert not is_not_subject_first("test_connect_to_closed_port_raises_connection_refused")
