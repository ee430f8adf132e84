"""The model of the transaction protocol, its table and its page agree; ``make model`` runs TLC."""

import ast
import re
from pathlib import Path

import pytest

from tests.house.sources import REPOSITORY
from tests.model.__main__ import MODULE, problem
from tests.model.configurations import LIVENESS, SAFETY, Bounds, Configuration
from tests.model.table import ALL
from tests.model.tlc import Found
from tests.tidy.test_walks import functions

PAGE = (REPOSITORY / "docs" / "internals" / "transaction-model.md").read_text()
MODEL = MODULE.read_text()
STOPS = re.findall(r"`([\w/]+\.py)::([\w.]+)`", PAGE)


def found(violated: str | None = None, states: int = 100, *, is_complete: bool = True) -> Found:
    return Found(violated, is_complete, states, depth=10, seconds=1.0, trace=[], output=Path("tlc.log"))


@pytest.mark.parametrize("stop", STOPS, ids="::".join)
def test_page_names_functions_that_exist(stop: tuple[str, str]) -> None:
    file, function = stop
    assert function in set(functions(ast.parse((REPOSITORY / file).read_text()).body))


def test_page_names_every_action_of_the_model() -> None:
    actions = re.findall(
        r"^([A-Z]\w+)(?:\([\w, ]*\))? ==\n(?:    LET .*\n(?:.*\n)*?    IN\n?)?    /\\", MODEL, re.MULTILINE
    )
    steps = {name for name in actions if re.search(rf"\b{name}\b.* Says\(", MODEL)}
    assert len(steps) > 15
    assert [name for name in sorted(steps) if f"`{name}`" not in PAGE] == []


def test_page_has_the_result_of_every_configuration() -> None:
    rows = dict(re.findall(r"^\| `(v\d-[\w-]+)` \|[^|]*\| `?(\w+)`? \|", PAGE, re.MULTILINE))
    assert rows == {each.name: each.violated or "none" for each in ALL}


def test_safeguard_is_taken_out_in_a_configuration() -> None:
    safeguards = set(re.findall(r'^    "([\w ]+)"[,}]', MODEL, re.MULTILINE))
    assert safeguards == {safeguard for each in ALL for safeguard in each.without}


def test_property_is_violated_in_a_configuration_and_safe_ones_have_states() -> None:
    assert {each.violated for each in ALL if each.violated} == {*SAFETY, LIVENESS}
    assert [each.name for each in ALL if not each.violated and each.least_states < 1_000] == []


@pytest.mark.parametrize(
    ("configuration", "result"),
    [
        (Configuration("finds", 1, Bounds(), violated="Atomicity"), found()),
        (Configuration("finds", 1, Bounds(), violated="Atomicity"), found("OwnOutcome")),
        (Configuration("finds", 1, Bounds(), violated="Atomicity"), found("Atomicity", is_complete=False)),
        (Configuration("safe", 1, Bounds(), least_states=101), found()),
        (Configuration("safe", 1, Bounds(), least_states=1), found("Atomicity")),
        (Configuration("safe", 1, Bounds(), least_states=1), found(is_complete=False)),
    ],
)
def test_result_that_differs_from_the_table_is_a_problem(configuration: Configuration, result: Found) -> None:
    assert problem(configuration, result) is not None


def test_result_that_is_as_the_table_says_is_no_problem() -> None:
    assert problem(Configuration("finds", 1, Bounds(), violated="Atomicity"), found("Atomicity")) is None
    assert problem(Configuration("live", 1, Bounds(), violated=LIVENESS), found(LIVENESS)) is None
    assert problem(Configuration("safe", 1, Bounds(), least_states=100), found()) is None
