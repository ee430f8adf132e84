"""Requests that change something are seen with their outcome, whatever becomes of their connection (B141)."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.dispatcher import Dispatcher, PendingResponse
from oncelog.broker.dispatch.request import CloseConnection, ConnectionInfo, RequestContext
from oncelog.broker.dispatch.sliced_work import SlicedWork, in_slices, new_budget
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode, error_of
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from oncelog.protocol.schema import Message

VERSION: Final = 2
SMALL: Final = ["payroll"]
LARGE: Final = [f"group-{number:040}" for number in range(2_000)]


class Watched:
    """A dispatcher whose one API is watched, and the connection of its client."""

    def __init__(self, outcome: Callable[["Watched", DeleteGroupsRequest], Outcome]) -> None:
        self.work = SlicedWork()
        self.connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
        self.seen: list[list[str]] = []

        @handles(ApiKey.DELETE_GROUPS, versions="0-2")
        def handle_delete_groups(broker: Any, context: RequestContext, request: DeleteGroupsRequest) -> Outcome:
            return outcome(self, request)

        self.dispatcher = Dispatcher(SimpleNamespace(sliced_work=self.work), [handle_delete_groups])  # type: ignore[arg-type]
        self.dispatcher.watch(frozenset({ApiKey.DELETE_GROUPS}), self._see)

    def _see(self, context: RequestContext, name: str, request: Message, outcome: Message | ErrorCode) -> None:
        if isinstance(outcome, ErrorCode):
            self.seen.append([outcome.name])
            return
        assert isinstance(outcome, DeleteGroupsResponse)
        self.seen.append(sorted({error_of(result.error_code).name for result in outcome.results}))

    def send(self, groups: list[str]) -> Any:
        frame = b"".join(encode_request(9, "c", DeleteGroupsRequest(groups_names=groups), VERSION))
        return self.dispatcher.dispatch(memoryview(bytearray(frame))[4:], self.connection)


async def finished(pending: PendingResponse) -> None:
    """Do what a connection does, also one that is lost."""
    assert asyncio.iscoroutine(pending.awaitable)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pending.awaitable)
    pending.finish(task)


def respond(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group) for group in request.groups_names])


@pytest.mark.parametrize("groups", [SMALL, LARGE], ids=["small", "large"])
async def test_change_whose_client_goes_while_the_response_is_made_is_seen(groups: list[str]) -> None:
    async def change(watched: Watched, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        watched.connection.is_open = False  # The change is made here.
        budget = new_budget()
        made = in_slices(range(100), lambda number: number, budget, 1_000)
        await watched.work.finish(made, budget, watched.connection)
        return respond(request)

    watched = Watched(lambda watched, request: change(watched, request))
    await finished(watched.send(groups))
    assert watched.seen == [["NONE"]]
    assert watched.connection.changes_under_way == 0


async def test_large_request_whose_client_goes_before_it_is_decoded_changes_nothing() -> None:
    watched = Watched(lambda watched, request: respond(request))
    pending = watched.send(LARGE)
    watched.connection.is_open = False
    with pytest.raises(CloseConnection, match="its client has gone"):
        await pending.awaitable
    assert watched.seen == []


async def test_change_whose_outcome_no_client_waits_for_is_seen_as_unknown() -> None:
    future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
    watched = Watched(lambda watched, request: future)
    pending = watched.send(SMALL)
    future.cancel()
    with pytest.raises(CloseConnection):
        pending.finish(future)
    assert watched.seen == [[ErrorCode.NETWORK_EXCEPTION.name]]


async def test_change_that_ends_by_an_exception_is_seen() -> None:
    def fail() -> Outcome:
        raise RuntimeError("unforeseen")

    watched = Watched(lambda watched, request: fail())
    with pytest.raises(CloseConnection):
        watched.send(SMALL)
    assert watched.seen == [[ErrorCode.UNKNOWN_SERVER_ERROR.name]]
