"""What a member does about every error: the tables, over all codes."""

import pytest

from oncelog.clients.consumer.member_reactions import COMMIT, HEARTBEAT, JOIN, SYNC, Reaction, reaction
from oncelog.protocol.errors import RETRIABLE, ErrorCode

TABLES = {"JOIN": JOIN, "SYNC": SYNC, "HEARTBEAT": HEARTBEAT, "COMMIT": COMMIT}


@pytest.mark.parametrize("name", TABLES)
def test_success_and_a_coordinator_elsewhere_mean_the_same_everywhere(name: str) -> None:
    assert reaction(TABLES[name], ErrorCode.NONE) is Reaction.PROCEED
    for error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        assert reaction(TABLES[name], error) is Reaction.FIND_COORDINATOR


@pytest.mark.parametrize(
    ("error", "join", "sync", "heartbeat", "commit"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "REJOIN_AS_NEW", "REJOIN_AS_NEW", "REJOIN_AS_NEW", "REJOIN_AS_NEW"),
        (ErrorCode.ILLEGAL_GENERATION, "FAIL", *["REJOIN_WITHOUT_GENERATION"] * 3),
        (ErrorCode.FENCED_INSTANCE_ID, "FENCED", "FENCED", "FENCED", "FENCED"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "REJOIN", "REJOIN", "REJOIN", "REJOIN"),
        (ErrorCode.MEMBER_ID_REQUIRED, "REJOIN", "FAIL", "RETRY", "FAIL"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "RETRY", "RETRY", "RETRY", "RETRY"),
        (ErrorCode.REQUEST_TIMED_OUT, "RETRY", "RETRY", "RETRY", "FIND_COORDINATOR"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "RETRY", "RETRY", "RETRY", "RETRY"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "FAIL", "FAIL", "FAIL", "FAIL"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "FAIL", "FAIL", "RETRY", "FAIL"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "FAIL", "FAIL", "RETRY", "FAIL"),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, "FAIL", "FAIL", "RETRY", "FAIL"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "FAIL", "FAIL", "RETRY", "FAIL"),
    ],
)
def test_error_of_each_request_has_its_reaction(
    error: ErrorCode, join: str, sync: str, heartbeat: str, commit: str
) -> None:
    assert [reaction(table, error).name for table in TABLES.values()] == [join, sync, heartbeat, commit]


@pytest.mark.parametrize("name", TABLES)
def test_retriable_errors_and_heartbeats_never_fail(name: str) -> None:
    for error in ErrorCode:
        if error in RETRIABLE:
            assert reaction(TABLES[name], error) not in (Reaction.FAIL, Reaction.FENCED)
    failing = {error for error in ErrorCode if reaction(HEARTBEAT, error) is Reaction.FAIL}
    assert failing == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
