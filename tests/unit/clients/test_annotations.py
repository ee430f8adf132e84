"""Values compared with annotations: what is accepted, and how a mismatch is named."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Literal

import pytest

from oncelog.clients.annotations import describe, require_type
from oncelog.protocol.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Level(IntEnum):
    LOW = 1


class Index:
    """An integer of another library, such as NumPy's."""

    def __index__(self) -> int:
        return 7


ACCEPTED: list[tuple[Any, Any]] = [
    (7, int),
    (Index(), int),
    (Level.LOW, int),
    (Level.LOW, Level),
    (7, float),
    (7.5, float),
    (True, bool),
    (None, str | None),
    ("x", str | None),
    ("1", Literal["all", "1", 0]),
    ("unknown", Literal["all", "1", 0]),
    (["a"], Sequence[str]),
    (("a",), Collection[str]),
    ({"a"}, tuple[str, ...]),
    (iter([3]), Iterable[str]),
    ({"a": 1}, Mapping[str, int]),
    ({"a": None}, Mapping[str, Sequence[str] | None]),
    ([ORDERS], Collection[TopicPartition]),
    (print, Callable[[str], None]),
    (object(), Any),
]
REFUSED: list[tuple[Any, Any, str]] = [
    ("7", int, "x must be int, not str"),
    (True, int, "x must be int, not bool"),
    (7.0, int, "x must be int, not float"),
    ("7", float, "x must be a number, not str"),
    (1, bool, "x must be bool, not int"),
    (7, str | None, "x must be str or None, not int"),
    (1, Level, "x must be Level, not int"),
    (True, Literal["all", 1], "x must be str or int, not bool"),
    ("ab", Collection[str], "x must be a collection of str, not str: put it into a list"),
    (b"ab", Iterable[str] | None, "x must be a collection of str, not bytes: put it into a list"),
    (ORDERS, Collection[TopicPartition], "x must be a collection of TopicPartition, not TopicPartition: put it into"),
    (7, Collection[str], "x must be a collection of str, not int"),
    (["a", 7], Sequence[str], "x[1] must be str, not int"),
    ([("orders", 0)], Sequence[TopicPartition], "x[0] must be TopicPartition, not tuple"),
    (["a"], Mapping[str, int], "x must be a mapping of str to int, not list"),
    ({"a": "1"}, Mapping[str, int], "x[a] must be int, not str"),
    ({7: 1}, Mapping[str, int], "a key of x must be str, not int"),
    ({"a": [1]}, Mapping[str, Sequence[str] | None], "x[a][0] must be str, not int"),
    (3, Callable[[str], None], "x must be a function, not int"),
]


@pytest.mark.parametrize(("value", "annotation"), ACCEPTED)
def test_value_of_annotated_type_is_accepted(value: object, annotation: Any) -> None:
    require_type(value, annotation, "x")


@pytest.mark.parametrize(("value", "annotation", "text"), REFUSED)
def test_value_of_another_type_raises_type_error_that_names_it(value: object, annotation: Any, text: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(text)}"):
        require_type(value, annotation, "x")


def test_error_names_what_has_the_parameter() -> None:
    with pytest.raises(TypeError, match=r"^Config: x must be int, not str$"):
        require_type("secret", int, "x", of="Config")


def test_iterator_is_not_read() -> None:
    values = iter([1, 2])
    require_type(values, Iterable[str], "x")
    assert list(values) == [1, 2]


def test_union_of_unions_is_described_without_repetition() -> None:
    assert describe(Literal["a"] | Literal["b", 1] | None) == "str or int or None"
