"""Clauses that catch everything."""

import pytest

from tests.house.broad_excepts import BroadExcept, broad_excepts
from tests.unit.house.parsed import product


@pytest.mark.parametrize(
    ("clause", "raises_again"),
    [
        ("except Exception: pass", False),
        ("except builtins.Exception as error: raise Failed from error", False),
        ("except (OSError, BaseException): raise", True),
        ("except: pass", False),
        ("except* Exception: pass", False),
    ],
)
def test_broad_excepts_clause_catches_everything_is_listed(clause: str, raises_again: bool) -> None:
    assert broad_excepts(product(broker__a=f"try: pass\n{clause}")) == [BroadExcept("broker/a.py", 2, raises_again)]


@pytest.mark.parametrize("clause", ["except OSError: pass", "except (KeyError, ValueError): pass", "finally: pass"])
def test_broad_excepts_clause_names_errors_is_not_listed(clause: str) -> None:
    assert broad_excepts(product(broker__a=f"try: pass\n{clause}")) == []


def test_broad_excepts_suppress_of_exception_is_listed() -> None:
    assert len(broad_excepts(product(broker__a="with contextlib.suppress(OSError, Exception): pass"))) == 1


def test_broad_excepts_dispatch_in_any_folder_is_not_listed() -> None:
    text = "try: pass\nexcept Exception: pass"
    assert broad_excepts(product(broker__dispatch=text, broker__network__dispatch=text)) == []
