"""``Admin``: the requests of an administrator to a cluster, in one place.

    async with Admin("localhost:9092") as admin:
        outcomes = await admin.create_topics([NewTopic(name="orders", partitions=3)])

Each method is a function of a module of this package with the ``cluster`` of the administrator as its first argument;
that function documents the arguments and the result. Errors are the same everywhere: a request about several things has
a value or a ``Refusal`` (or an ``ErrorCode``) for each of them; a request about one thing raises ``BrokerRefused``; if
there is no response at all, that is another exception of ``oncelog.clients.errors``. Transient errors are retried
before. A call takes ``operation_seconds`` at most, however many requests it consists of; only ``transaction_history``,
which reads a whole partition, has that time for each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from inspect import signature
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, get_args, get_origin

from oncelog.clients.admin import (
    cluster_description,
    configs,
    features,
    fencing,
    group_offsets,
    groups,
    hanging_transactions,
    log_dirs,
    offsets,
    producers,
    topic_pages,
    topics,
    transactions,
    txn_markers,
)
from oncelog.clients.admin.abort_verification import Check, verify_abort
from oncelog.clients.admin.transaction_abort import (
    AbortPlan,
    WhichTransaction,
    carry_out_abort,
    find_open_transaction,
    prepare_abort,
)
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import OperationTimedOut
from oncelog.clients.obstacles import no_response
from oncelog.clients.retry import one_deadline
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.clients.admin.transaction_history import TransactionHistory

T = TypeVar("T")
P = ParamSpec("P")

_ERROR_SECONDS: Final = 0.1
"""Seconds after its deadline in which an operation can still end with a reason, before it is cancelled without one."""


def _operation(
    function: Callable[Concatenate[Cluster, P], Awaitable[T]],
) -> "Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]]":
    """Return the method of ``Admin`` that calls a function with its cluster, and bounds the time of the call."""

    parameters = list(signature(function).parameters.values())[1:]
    collections = [(index, each.name) for index, each in enumerate(parameters) if _is_collection(each.annotation)]

    @wraps(function)
    async def method(admin: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        for index, name in collections:
            given = args[index] if index < len(args) else kwargs.get(name)
            if isinstance(given, str | bytes):  # A collection of characters, to Python.
                kind = type(given).__name__
                raise TypeError(f"{function.__name__} takes a collection as {name}, not one {kind}: pass [{given!r}]")
        return await admin._in_time(function(admin.cluster, *args, **kwargs))

    return method


def _is_collection(annotation: object) -> bool:
    """Return whether arguments of a type are collections: ``Sequence[str]``, say, or ``Iterable[str] | None``."""
    kinds = (get_origin(annotation), *map(get_origin, get_args(annotation)))
    return any(isinstance(kind, type) and issubclass(kind, Iterable) for kind in kinds)


async def _prepare_abort(cluster: Cluster, topic_partition: TopicPartition, which: WhichTransaction) -> AbortPlan:
    """Return what ``carry_out_abort`` would do about an open transaction. Raises as ``find_open_transaction``."""
    return await prepare_abort(cluster, await find_open_transaction(cluster, topic_partition, which))


async def _carry_out_abort(cluster: Cluster, plan: AbortPlan) -> tuple[Check, ...]:
    """Abort a transaction by its plan; return whether partitions, coordinator and group offsets agree then."""
    await carry_out_abort(cluster, plan)
    return await verify_abort(cluster, plan)


class Admin:
    """An administrator of one cluster. Close it, or use it as a context manager."""

    def __init__(
        self,
        where: str | Cluster,
        *,
        rng: Random | None = None,
        client_id: str = "oncelog-admin",
        connect_seconds: float = 10.0,
        operation_seconds: float = 30.0,
    ) -> None:
        """Set up an administrator without connecting.

        ``where`` is ``host:port,host:port``, or a ``Cluster``, which its owner closes; the other arguments are for an
        address. ``rng`` spreads retries, and is seeded by the system by default. An attempt to connect takes at most
        ``connect_seconds``, and a call at most ``operation_seconds``. Raises ``TypeError`` for a ``where`` of another
        type, and ``ValueError`` for a ``host:port`` or a duration that cannot be one.
        """
        self._owned: Cluster | None = None
        if isinstance(where, Cluster):
            self.cluster = where
            return
        if not isinstance(where, str):
            raise TypeError(f"pass the brokers to connect to as 'host:port,host:port', not {type(where).__name__}")
        self.cluster = self._owned = Cluster(
            parse_bootstrap(where),
            rng=rng or Random(),
            client_id=client_id,
            connect_seconds=connect_seconds,
            operation_seconds=operation_seconds,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this object made."""
        if self._owned is not None:
            await self._owned.close()

    async def _in_time(self, work: Awaitable[T]) -> T:
        """Return the result of some work, all of it together within ``operation_seconds``.

        Raises ``OperationTimedOut`` with the obstacles that were in the way.
        """
        seconds = self.cluster.operation_seconds
        try:
            with one_deadline(seconds) as deadline:
                async with asyncio.timeout_at(deadline + _ERROR_SECONDS):
                    return await work
        except TimeoutError:
            reasons = no_response(seconds, self.cluster.obstacles(), self.cluster.pool.time_outs())
            raise OperationTimedOut(reasons) from None

    # The cluster

    describe_cluster = _operation(cluster_description.describe_cluster)
    describe_log_dirs = _operation(log_dirs.describe_log_dirs)
    describe_features = _operation(features.describe_features)
    update_features = _operation(features.update_features)

    # Topics

    list_topics = _operation(topics.list_topics)
    describe_topics = _operation(topics.describe_topics)
    describe_topic_pages = _operation(topic_pages.describe_topic_pages)
    create_topics = _operation(topics.create_topics)
    delete_topics = _operation(topics.delete_topics)
    delete_topics_by_id = _operation(topics.delete_topics_by_id)
    create_partitions = _operation(topics.add_partitions)
    delete_records = _operation(topics.delete_records)
    list_offsets = _operation(offsets.list_offsets)

    # Configurations

    describe_configs = _operation(configs.describe_configs)
    alter_configs = _operation(configs.alter_configs)
    replace_configs = _operation(configs.replace_configs)

    # Consumer groups

    list_groups = _operation(groups.list_groups)
    describe_groups = _operation(groups.describe_groups)
    delete_groups = _operation(groups.delete_groups)
    remove_members = _operation(groups.remove_members)
    remove_all_members = _operation(groups.remove_all_members)
    committed_offsets = _operation(group_offsets.committed_offsets)
    committed_offsets_of_groups = _operation(group_offsets.committed_offsets_of_groups)
    alter_group_offsets = _operation(group_offsets.commit_offsets)
    delete_group_offsets = _operation(group_offsets.delete_offsets)

    # Transactions

    describe_producers = _operation(producers.describe_producers)
    list_transactions = _operation(transactions.list_transactions)
    describe_transactions = _operation(transactions.describe_transactions)
    fence_producers = _operation(fencing.fence_producers)
    force_terminate_transaction = _operation(fencing.force_terminate_transaction)
    find_hanging_transactions = _operation(hanging_transactions.find_hanging_transactions)
    prepare_abort = _operation(_prepare_abort)
    carry_out_abort = _operation(_carry_out_abort)
    abort_transaction = _operation(txn_markers.write_abort_marker)

    async def transaction_history(self, transactional_id: str) -> "TransactionHistory":
        """Return what the transaction log holds of a transactional id, from the whole of its partition."""
        from oncelog.clients.admin.transaction_history import read_transaction_history

        return await read_transaction_history(self.cluster, transactional_id)
