"""What is too large."""

import pytest

from tests.house.sizes import Sized, long_files, long_functions, many_methods, many_parameters
from tests.unit.house.parsed import product


def test_long_files_limit_is_exceeded_by_one_line_returns_file() -> None:
    sources = product(broker__long="#\n" * 4, broker__short="#\n" * 3)
    assert long_files(sources, 3) == [Sized(4, "broker/long.py")]


def test_long_functions_decorator_is_not_counted_and_nested_function_is_found() -> None:
    text = "@handles\ndef outer():\n    def inner():\n        pass\n\n    return inner\n"
    assert long_functions(product(broker__a=text), 1) == [
        Sized(5, "broker/a.py:2 outer"),
        Sized(2, "broker/a.py:3 inner"),
    ]
    assert long_functions(product(broker__a=text), 5) == []


@pytest.mark.parametrize(
    ("parameters", "count"),
    [("self", 0), ("cls, a", 1), ("a, /, b, *c, d, **e", 5), ("self, *, a=1, b=2", 2), ("", 0)],
)
def test_many_parameters_receiver_is_not_counted(parameters: str, count: int) -> None:
    (found,) = many_parameters(product(broker__a=f"class A:\n    def f({parameters}): ..."), -1)
    assert found.size == count


def test_many_methods_setter_counts_once_and_inner_class_apart() -> None:
    text = """
class A:
    @property
    def x(self): ...
    @x.setter
    def x(self, value): ...
    async def y(self): ...
    class B:
        def z(self): ...
"""
    assert many_methods(product(broker__a=text), 1) == [Sized(2, "broker/a.py:2 A")]
