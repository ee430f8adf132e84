"""Topic names."""

import pytest

from oncelog.protocol.topic_name import unified, why_invalid


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "__consumer_offsets", "x" * 249, "..."])
def test_legal_topic_names_are_accepted(name: str) -> None:
    assert why_invalid(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a:b"])
def test_illegal_topic_names_are_refused(name: str) -> None:
    assert why_invalid(name)


def test_dots_and_underscores_collide() -> None:
    assert unified("a.b_c") == unified("a_b.c")
    assert unified("a.b") != unified("a-b")
