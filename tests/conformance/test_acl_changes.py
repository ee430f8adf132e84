"""A change of the access control lists while clients are at work: it counts from the next request on."""

from typing import Any

from oncelog.protocol.acl import AclResourceType
from oncelog.protocol.errors import ErrorCode
from tests.conformance.acl_requests import REQUESTS, T
from tests.conformance.acl_stage import ALICE, AclStage
from tests.conformance.acl_table import AclOperation, Need
from tests.conformance.broker_stage import acl_stage

MAY_READ = Need(AclOperation.READ, AclResourceType.TOPIC, T, None).rule()


async def fetched(
    stage: AclStage, session_id: int, epoch: int, offset: int | None
) -> tuple[int, list[tuple[str, int]]]:
    """The session, and the error and the bytes of each partition. ``offset`` None: of what the session has already."""
    fields: dict[str, Any] = {"max_bytes": 1_000_000, "session_id": session_id, "session_epoch": epoch, "topics": []}
    if offset is not None:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
        fields["topics"] = [{"topic_id": await stage.topic_id(T), "partitions": [partition]}]
    response = await stage.send("Fetch", 15, fields, ALICE)
    assert response.error_code == ErrorCode.NONE
    return response.session_id, [
        (ErrorCode(each.error_code).name, len(each.records or b""))
        for topic in response.responses
        for each in topic.partitions
    ]


async def test_fetch_session_goes_by_the_lists_of_each_request() -> None:
    async with acl_stage(allows_everyone=False) as stage:
        await stage.set_rules([MAY_READ])
        session, first = await fetched(stage, 0, 0, 0)
        assert first == [("NONE", 0)]
        await stage.set_up("Produce", 12, **await REQUESTS["produce-name"](stage))
        await stage.set_rules([])
        _, denied = await fetched(stage, session, 1, None)
        assert denied == [("TOPIC_AUTHORIZATION_FAILED", 0)]
        await stage.set_rules([MAY_READ])
        _, allowed = await fetched(stage, session, 2, None)
        assert [error for error, size in allowed if size] == ["NONE"]


async def test_fetch_session_with_nothing_new_shows_that_it_was_denied() -> None:
    async with acl_stage(allows_everyone=False) as stage:
        await stage.set_rules([MAY_READ])
        await stage.set_up("Produce", 12, **await REQUESTS["produce-name"](stage))
        session, first = await fetched(stage, 0, 0, 0)
        assert [error for error, size in first if size] == ["NONE"]
        _, rest = await fetched(stage, session, 1, 1)
        assert rest == []
        await stage.set_rules([])
        _, denied = await fetched(stage, session, 2, None)
        assert denied == []  # The client gets the error with the next record, as there is nothing to withhold.
        await stage.set_up("Produce", 12, **await REQUESTS["produce-name"](stage))
        _, denied = await fetched(stage, session, 3, None)
        assert denied == [("TOPIC_AUTHORIZATION_FAILED", 0)]
