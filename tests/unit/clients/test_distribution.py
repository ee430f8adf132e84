"""What clients say about themselves."""

from importlib.metadata import version

from oncelog.clients import VERSION


def test_version_equals_that_of_the_distribution() -> None:
    assert version("oncelog") == VERSION
