"""What is said of a broker that starts slowly."""

from pathlib import Path

import pytest

from oncelog.broker.local_cluster.control_socket import MemberStatus
from oncelog.broker.local_cluster.slow_start import about_slow_start

INFO = "[2026-11-28 22:00:00,000] INFO /data: 3 logs loaded (oncelog.broker.storage.log_manager)\n"
TAKEN = (
    "[2026-11-28 22:00:02,000] WARNING Broker id 2 is still registered by session 0x1, at no known address, perhaps of "
    "a broker that was killed: waiting until it expires, at most 9 s (oncelog.coordinator.controller.membership)\n"
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (INFO + TAKEN, "2 is still starting: Broker id 2 is still registered by session 0x1, at no known address"),
        (TAKEN + INFO, "2 is still starting: a broker serves when there is a controller"),
        (None, "2 is still starting: a broker serves when there is a controller"),
    ],
)
def test_note_of_a_slow_start_has_the_reason_that_the_log_ends_with(log: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broker-2.log"
    if log is not None:
        path.write_text(log)
    status = MemberStatus(member="2", state="starting", pid=7, address="localhost:1", exit_code=None, log=str(path))
    note = about_slow_start(status)
    assert said in note
    assert "broker-2.log" in note
