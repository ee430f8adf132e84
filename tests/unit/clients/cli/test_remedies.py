"""What a user can do about an error that a broker returns."""

import pytest

from oncelog.clients.cli.remedies import remedy
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("the disk of /data is full, and the metadata journal takes no change: free space", "do not restart it"),
        (None, "`oncelog health` names the directory"),
    ],
)
def test_remedy_of_a_storage_error_says_that_the_disk_is_full_where_that_is_known(
    message: str | None, named: str
) -> None:
    advice = remedy(Refusal(error=ErrorCode.KAFKA_STORAGE_ERROR, message=message))
    assert advice is not None
    assert "disk" in advice
    assert "full" in advice
    assert named in advice
