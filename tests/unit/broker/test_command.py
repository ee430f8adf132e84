"""The command ``oncelog`` as a function of this process."""

import gc

import pytest
from click.testing import CliRunner

from oncelog.broker.__main__ import cli


@pytest.mark.parametrize("arguments", [["serve", "--help"], ["serve", "--no-such-option"]], ids=" ".join)
def test_serve_that_starts_no_broker_leaves_the_collector_on(arguments: list[str]) -> None:
    CliRunner().invoke(cli, arguments)
    assert gc.isenabled()
