"""Fetch (API key 1): read records for consumers and followers, with sessions (KIP-227) and long polling.

The work is in ``oncelog.broker.replication``: ``fetch_session`` keeps what a client fetches, ``fetch_reader`` reads one
round, ``delayed_fetch`` waits. Here a request becomes parameters, and replies become a response.

Isolation 0 reads below the high watermark, 1 (read committed) below the last stable offset, and then each partition
names the aborted transactions that the client must skip. From version 11 on a consumer may also read from a follower,
and is referred to one in its own rack if ``replica.selector.class`` selects it (KIP-392).

A follower names itself by its broker id, needs the right to act as a member of the cluster, and sees the log to its
end. Its fetch offset also acknowledges what it has: by it records become replicated.

Versions: 0-3 get messages of format 0 or 1 (``oncelog.broker.handlers.old_fetch``); 4 is the first with batches and
aborted transactions; 5 has log start offsets; 7 sessions; 9 leader epochs (KIP-320); 10
zstd; 11 racks; 12 is flexible and has diverging epochs; 13 names topics by id; 15 moves the replica id into a struct;
16 returns the current leader (KIP-951); 17 has directory ids, 18 the follower's high watermark (KIP-1166): both are for
replicas of KRaft's own log and are ignored. Before 6 clients do not know KAFKA_STORAGE_ERROR and get
NOT_LEADER_OR_FOLLOWER, so that they look for another leader.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from oncelog.broker.config.broker_config import RACK_AWARE_SELECTOR
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.fetch_refusal import is_long, refuse_in_slices
from oncelog.broker.handlers.old_fetch import fetch_for_old_consumer
from oncelog.broker.parts import Broker
from oncelog.broker.replication.delayed_fetch import DelayedFetch
from oncelog.broker.replication.fetch_reader import FetchParams
from oncelog.broker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchIsolation,
    replica_epoch,
    replica_id,
)
from oncelog.broker.replication.leader_hint import leader_hint
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_NO_REPLICA: Final = -1
_READ_COMMITTED: Final = 1
_FIRST_VERSION_WITH_BATCHES: Final = 4
_FIRST_VERSION_WITH_STORAGE_ERROR: Final = 6
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_LAST_EPOCH: Final = 12
_FIRST_VERSION_WITH_CURRENT_LEADER: Final = 16
_Reading: TypeAlias = FetchResponse | asyncio.Future[FetchResponse]
_LEADERSHIP_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@handles(ApiKey.FETCH, versions="0-18", in_turn=True)
def handle_fetch(broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    replicas = broker.replica_manager
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    is_old = context.api_version < _FIRST_VERSION_WITH_BATCHES
    is_of_replica = replica_id(request) >= 0
    if is_of_replica and (is_old or not _is_broker(broker, context)):
        return _refuse_follower(broker, context, request, now_ms)
    if is_old:
        return fetch_for_old_consumer(broker, context, request, partial(_read_for_old_consumer, broker, context))
    names_all = FINAL_EPOCH <= request.session_epoch <= INITIAL_EPOCH
    if names_all and not is_of_replica and is_long(request):
        return _fetch_in_slices(broker, context, request, _params(broker, context, request).may_read)
    fetch = replicas.fetch_sessions.open(request, context.api_version, replicas.topic_name, now_ms)
    if isinstance(fetch, ErrorCode):
        return FetchResponse(error_code=fetch)
    if fetch.session.privileged and is_of_replica:
        replicas.note_follower_contact(fetch.session, now_ms)
    return _start(broker, context, fetch, _params(broker, context, request))


def _read_for_old_consumer(broker: Broker, context: RequestContext, request: FetchRequest) -> _Reading:
    replicas = broker.replica_manager
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    fetch = replicas.fetch_sessions.open(request, context.api_version, replicas.topic_name, now_ms)
    assert isinstance(fetch, FetchContext), "a fetch without a session opens"
    is_committed = broker.config.oncelog_downconversion_isolation_level == "read_committed"
    isolation = FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK
    return _start(broker, context, fetch, _params(broker, context, request)._replace(isolation=isolation))


async def _fetch_in_slices(
    broker: Broker, context: RequestContext, request: FetchRequest, may_read: Callable[[str], bool] | None
) -> _Reading:
    """Refuse in slices what cannot be read, then fetch the rest.

    With something refused the response does not wait for records, and the client gets no session: it names all its
    partitions again, as every client can.
    """
    refused = await refuse_in_slices(broker, context, request, may_read)
    params = _params(broker, context, request)
    if refused:
        request.session_epoch = FINAL_EPOCH
        params = params._replace(max_wait_ms=0)
    replicas, now_ms = broker.replica_manager, int(asyncio.get_running_loop().time() * 1000)
    fetch = replicas.fetch_sessions.open(request, context.api_version, replicas.topic_name, now_ms)
    assert isinstance(fetch, FetchContext), "a full fetch opens"
    started = _start(broker, context, fetch, params)
    if not refused:
        return started
    response = await started if isinstance(started, asyncio.Future) else started
    if response.responses or not response.throttle_time_ms:
        response.responses += refused
    return response


def _start(broker: Broker, context: RequestContext, fetch: FetchContext, params: FetchParams) -> _Reading:
    return DelayedFetch(
        fetch,
        params,
        replicas=broker.replica_manager,
        shape=partial(_shape, broker, context),
        memory=broker.response_memory,
        client=context.connection,
    ).start()


def _is_broker(broker: Broker, context: RequestContext) -> bool:
    return broker.authorizer.authorize(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def _refuse_follower(broker: Broker, context: RequestContext, request: FetchRequest, now_ms: int) -> Outcome:
    """Return TOPIC_AUTHORIZATION_FAILED for each partition, and do nothing to what is known of the real follower.

    Otherwise any client could end a follower's session, or have a dead follower count as alive.
    """
    context.connection.is_replica_fetcher = False
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request.replica_id, request.replica_state = _NO_REPLICA, None
    request.session_id, request.session_epoch = NO_SESSION, FINAL_EPOCH
    if is_long(request):
        return _fetch_in_slices(broker, context, request, _may_read_nothing)
    replicas = broker.replica_manager
    fetch = replicas.fetch_sessions.open(request, context.api_version, replicas.topic_name, now_ms)
    assert isinstance(fetch, FetchContext), "a fetch without a session opens"
    return _start(broker, context, fetch, _params(broker, context, request)._replace(may_read=_may_read_nothing))


def _may_read_nothing(topic: str) -> bool:
    return False


def _params(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchParams:
    follower = replica_id(request)
    if follower >= 0:
        epoch, known = replica_epoch(request), broker.metadata.image.brokers.get(follower)
        if known is not None:
            broker.replica_manager.follower_connections.admit(
                follower, context.connection, named_epoch=epoch, registered_epoch=known.epoch
            )
        else:
            context.connection.is_replica_fetcher = False
        max_bytes = max(request.max_bytes, 0)
        return FetchParams(
            max_wait_ms=request.max_wait_ms,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            isolation=FetchIsolation.LOG_END,
            may_read=None,
            replica_id=follower,
            replica_epoch=epoch,
            names_epochs=context.api_version >= _FIRST_VERSION_WITH_LAST_EPOCH,
        )
    max_bytes = max(min(request.max_bytes, broker.config.fetch_max_bytes), 0)
    if broker.quotas.limits_fetch:
        max_bytes = min(max_bytes, broker.quotas.most_fetched(context))
    knows_racks = context.api_version >= _FIRST_VERSION_WITH_RACKS
    selects = knows_racks and broker.config.replica_selector_class == RACK_AWARE_SELECTOR
    read_committed = request.isolation_level == _READ_COMMITTED
    return FetchParams(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=FetchIsolation.TXN_COMMITTED if read_committed else FetchIsolation.HIGH_WATERMARK,
        may_read=lambda topic: broker.authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic),
        reads_followers=knows_racks,
        rack_id=request.rack_id if selects else "",
    )


def _shape(broker: Broker, context: RequestContext, fetch: FetchContext) -> FetchResponse:
    """Return the response, its partitions grouped by topic: none if the client is over its quota."""
    throttle_time_ms = 0
    if broker.quotas.watches_fetches and not fetch.session.privileged:
        throttle_time_ms, gets_records = broker.quotas.record_fetch(context, fetch.size)
        if not gets_records:
            return FetchResponse(throttle_time_ms=throttle_time_ms)
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    endpoints: dict[int, NodeEndpoint] = {}
    by_id = fetch.session.uses_topic_ids
    for position, reply in fetch.replies_to_send():
        if reply.error_code:
            _explain(broker, context, position.topic, reply, endpoints)
        key = position.topic_id if by_id else position.topic or ""
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(topic=position.topic or "", topic_id=position.topic_id)
        topic.partitions.append(reply)
    return FetchResponse(
        throttle_time_ms=throttle_time_ms,
        responses=list(topics.values()),
        node_endpoints=list(endpoints.values()),
    )


def _explain(
    broker: Broker,
    context: RequestContext,
    topic: str | None,
    reply: PartitionData,
    endpoints: dict[int, NodeEndpoint],
) -> None:
    """Translate an error for the client's version, with the current leader where that helps."""
    if reply.error_code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version < _FIRST_VERSION_WITH_STORAGE_ERROR:
        reply.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if context.api_version < _FIRST_VERSION_WITH_CURRENT_LEADER or reply.error_code not in _LEADERSHIP_ERRORS:
        return
    assert topic is not None
    hint = leader_hint(
        broker.replica_manager, broker.metadata.image, context.connection.listener_name, (topic, reply.partition_index)
    )
    if hint is None:
        return
    reply.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if hint.host is not None:
        endpoints[hint.leader_id] = NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
