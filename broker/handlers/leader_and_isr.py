"""LeaderAndIsr (API key 4): the controller makes this broker leader or follower of partitions.

The work is in ``oncelog.broker.replication.replica_manager``: every order is applied before the response, at least
so far that no client is served under the former leadership any more.

A log is created with its topic's configuration, which is read from the metadata store first, in one bulk read for the
whole request. Its directory and files are then made off the loop: a busy disk takes any time for them. Partitions that
have a log here wait for neither. If the store does not respond in time, the response is REQUEST_TIMED_OUT; the
controller sends the request again, and sends nothing else before. So the read goes on, and the repetition awaits the
same one: a store that is slow delays the new log, and not all that the controller has to say. The response is the same
if another order came meanwhile, which may have deleted what this one would create.

Versions: 2 is for one incarnation of the broker (STALE_BROKER_EPOCH) and groups by topic; 5 names topics by id in the
response.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.control_plane import validate_control_request
from oncelog.broker.parts import Broker
from oncelog.broker.replication.replica_control import ConfigRead, NewTopics
from oncelog.coordinator.metadata_store.store import StoreUnavailable
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from oncelog.protocol.schema import ZERO_UUID

logger = logging.getLogger(__name__)

_READ_SECONDS: Final = 1.0
"""Shorter than the time without a response after which a broker counts as unreachable."""


@handles(ApiKey.LEADER_AND_ISR, versions="0-7")
def handle_leader_and_isr(broker: Broker, context: RequestContext, request: LeaderAndIsrRequest) -> Outcome:
    error = validate_control_request(broker, context, request.broker_epoch)
    if error:
        return LeaderAndIsrResponse(error_code=error)
    without_log = broker.replica_control.topics_without_log(request)
    if not without_log:
        return broker.replica_control.apply_leader_and_isr(request)
    return _apply_and_create(broker, context, request, without_log)


async def _apply_and_create(
    broker: Broker, context: RequestContext, request: LeaderAndIsrRequest, without_log: Collection[str]
) -> LeaderAndIsrResponse:
    """Carry out what needs no new log, read the configurations of the other topics, and carry out the rest."""
    control = broker.replica_control
    response = control.apply_leader_and_isr(_part(request, lambda topic: topic not in without_log))
    if response.error_code:
        return response
    orders = control.requests_admitted
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}  # Versions 0 and 1 have none.
    new_topics = frozenset((name, ids.get(name, ZERO_UUID)) for name in without_log)
    is_ready = await _read_configs(broker, new_topics) and control.requests_admitted == orders
    if not is_ready or not await control.prepare_logs(_part(request, lambda topic: topic in without_log)):
        response.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response
    error = validate_control_request(broker, context, request.broker_epoch)
    if error:
        return LeaderAndIsrResponse(error_code=error)
    rest = control.apply_leader_and_isr(_part(request, lambda topic: topic in without_log))
    rest.partition_errors += response.partition_errors
    rest.topics += response.topics
    return rest


async def _read_configs(broker: Broker, topics: NewTopics) -> bool:
    """Return whether the metadata store responded in time; a read that takes longer goes on."""
    control = broker.replica_control
    if control.config_read is None or control.config_read.topics != topics:
        reading = broker.supervisor.spawn(_read(broker, topics), "reading the configurations of topics")
        control.config_read = ConfigRead(topics, reading)
    read = control.config_read
    task = read.task
    done, _ = await asyncio.wait([task], timeout=_READ_SECONDS)
    if not done:
        _log_unread(topics, "the metadata store does not respond")
        return False
    if control.config_read is read:  # Else an order of another controller has begun another one.
        control.config_read = None
    return not task.cancelled() and task.result()


async def _read(broker: Broker, topics: NewTopics) -> bool:
    try:
        await broker.configs.read_topics(sorted(name for name, _ in topics))
    except StoreUnavailable as error:
        _log_unread(topics, str(error))
        return False
    return True


def _log_unread(topics: NewTopics, reason: str) -> None:
    logger.warning(
        "The configurations of %d topics cannot be read, so none of their logs is created yet: %s", len(topics), reason
    )


def _part(request: LeaderAndIsrRequest, wanted: Callable[[str], bool]) -> LeaderAndIsrRequest:
    """Return the request as far as it is about wanted topics."""
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        is_k_raft_controller=request.is_k_raft_controller,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        type=request.type,
        ungrouped_partition_states=[p for p in request.ungrouped_partition_states if wanted(p.topic_name)],
        topic_states=[topic for topic in request.topic_states if wanted(topic.topic_name)],
        live_leaders=request.live_leaders,
        sequence=request.sequence,
    )
