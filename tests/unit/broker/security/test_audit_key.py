"""A start with another key than that of the audit log."""

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.audit_chain import PREVIOUS_SEAL, AuditChain
from oncelog.broker.security.audit_files import ended_path, open_file
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.storage.logs import DIRECTORY, new_disk

KEY = b"the key of the log"
PATH = f"{DIRECTORY}/audit.jsonl"


def written(lines: int, key: bytes | None = KEY, *, is_ended: bool = False) -> SimDisk:
    """A log of so many lines; if it is ended, in two files of which the second has one line."""
    disk, chain = new_disk(), AuditChain(key)
    content = b"".join(chain.add({"event": "change"}) for _ in range(lines))
    if is_ended:
        disk.write_atomic(ended_path(PATH, 1), content)
        content = chain.add({"event": "continued", PREVIOUS_SEAL: chain.head.seal})
    disk.write_atomic(PATH, content)
    return disk


@pytest.mark.parametrize("lines", [1, 2, 9])
@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("other", [None, b"some other key...."])
def test_start_with_another_key_names_the_setting_and_changes_nothing(
    lines: int, is_ended: bool, other: bytes | None
) -> None:
    disk = written(lines, is_ended=is_ended)
    before = disk.read(PATH)
    with pytest.raises(ConfigError, match=r"oncelog\.audit\.key\.file is another key"):
        open_file(disk, PATH, other)
    assert disk.read(PATH) == before
    found = open_file(disk, PATH, KEY)
    assert found.head.line == lines + is_ended


def test_start_with_a_key_after_lines_without_one_is_refused() -> None:
    disk = written(3, None)
    assert open_file(disk, PATH, None).head.line == 3
    with pytest.raises(ConfigError, match="begin another one"):
        open_file(disk, PATH, KEY)
