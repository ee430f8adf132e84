"""What is said when a process of a cluster cannot be started."""

from pathlib import Path

import pytest

from oncelog.broker.local_cluster.member_process import about_running
from oncelog.broker.local_cluster.zookeeper_server import JARS_VARIABLE, CannotStart, find_jars


def test_start_of_a_paused_member_names_the_order_that_lets_it_go_on() -> None:
    assert about_running("broker 2", "2", "paused") == "broker 2 is paused: `oncelog cluster resume 2` lets it go on"
    assert about_running("broker 2", "2", "running") == "broker 2 is running already"


def test_missing_jars_are_reported_with_every_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    with pytest.raises(
        CannotStart, match=r"pip install .*ONCELOG_ZOOKEEPER_JARS; in a checkout, `make cluster` fetches"
    ):
        find_jars()
