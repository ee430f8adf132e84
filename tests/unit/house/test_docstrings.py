"""How docstrings begin."""

import pytest

from tests.house.docstrings import VERBS_FILE, begins_with_verb, openings
from tests.unit.house.parsed import product


@pytest.mark.parametrize("text", ["Return the offset.", "Append, then answer.", "Stop.", "Hear of a change."])
def test_begins_with_verb_imperative_is_accepted(text: str) -> None:
    assert begins_with_verb(text)


@pytest.mark.parametrize(
    "text",
    ["", "The offset.", "Whether it leads.", "End of the log.", "Returns it.", "``topic``: its name.", "kill -9"],
)
def test_begins_with_verb_other_opening_is_refused(text: str) -> None:
    assert not begins_with_verb(text)


def test_openings_property_and_function_without_docstring_are_left_out() -> None:
    text = '''
class A:
    """A class."""
    @property
    def x(self):
        """The noun that it is."""
    @x.setter
    def x(self, value):
        """A value."""
    @cache
    def y(self):
        """Whether it is so or otherwise."""
        def z(): ...
'''
    (opening,) = openings(product(broker__a=text))
    assert (opening.place, opening.words, opening.is_imperative) == ("broker/a.py:11 y", "Whether it is so", False)


def test_verbs_file_is_sorted_and_without_repetition() -> None:
    lines = VERBS_FILE.read_text().splitlines()
    assert lines == sorted(set(lines))
    assert all(line.islower() for line in lines)
