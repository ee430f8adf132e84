"""``Admin``: the requests of an administrator to a cluster, in one place.

    async with Admin("localhost:9092") as admin:
        outcomes = await admin.create_topics([NewTopic(name="orders", partitions=3)])

Each method is a function of a module of this package with the ``cluster`` of the administrator as its first argument;
that function documents the arguments and the result. Errors are the same everywhere: a request about several things has
a value or a ``Refusal`` (or an ``ErrorCode``) for each of them; a request about one thing raises ``BrokerRefused``; if
there is no response at all, that is another exception of ``oncelog.clients.errors``. Transient errors are retried
before. A call takes ``default_api_timeout_ms`` at most, however many requests it consists of; only
``transaction_history``, which reads a whole partition, has that time for each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import Signature, signature
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from oncelog.clients.admin import (
    acls,
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
    quotas,
    tokens,
    topic_pages,
    topics,
    transactions,
    txn_markers,
)
from oncelog.clients.admin.abort_verification import Check, verify_abort
from oncelog.clients.admin.admin_config import AdminConfig
from oncelog.clients.admin.admin_settings import AdminSettings
from oncelog.clients.admin.transaction_abort import (
    AbortPlan,
    WhichTransaction,
    carry_out_abort,
    find_open_transaction,
    prepare_abort,
)
from oncelog.clients.annotations import require_type
from oncelog.clients.bootstrap import parse_bootstrap
from oncelog.clients.calls_under_way import CallsUnderWay
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import OperationTimedOut
from oncelog.clients.obstacles import no_response
from oncelog.clients.own_loop import OwnLoop
from oncelog.clients.retry import one_deadline
from oncelog.clients.runtime import client_config
from oncelog.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from oncelog.clients.admin.transaction_history import TransactionHistory

T = TypeVar("T")
P = ParamSpec("P")

_ERROR_SECONDS: Final = 0.1
"""Seconds after its deadline in which an operation can still end with a reason, before it is cancelled without one."""


def _operation(
    function: Callable[Concatenate[Cluster, P], Awaitable[T]], name: str = ""
) -> "Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]]":
    """Return the method of ``Admin`` that calls a function with its cluster, and bounds the time of the call.

    The method compares its arguments with the annotations of the function first, and raises ``TypeError``. ``name`` is
    the method's, by default that of the function.
    """
    expected = signature(function)
    called = name or function.__name__.lstrip("_")

    @wraps(function)
    async def method(admin: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        _, *given = _bound(expected, called, admin.cluster, *args, **kwargs).items()
        for parameter, value in given:
            require_type(value, expected.parameters[parameter].annotation, parameter, of=called)
        admin._own_loop.require()
        async with admin._calls.one():
            return await admin._in_time(function(admin.cluster, *args, **kwargs))

    return method


def _bound(expected: Signature, called: str, *args: object, **kwargs: object) -> dict[str, Any]:
    """Return arguments by the names of their parameters. Raises ``TypeError`` if they do not fit."""
    try:
        return expected.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{called}: {error}; it takes {', '.join(list(expected.parameters)[1:])}") from None


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
        where: str | AdminConfig | Cluster | None = None,
        *,
        rng: Random | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        """Set up an administrator without connecting.

        ``where`` is an ``AdminConfig``, or ``host:port,host:port`` with ``settings`` beside it, which are the fields of
        ``AdminConfig`` (the address may be the setting ``bootstrap`` as well); or a ``Cluster``, which its owner
        closes. ``rng`` spreads retries, and is seeded by the system by default. Raises ``TypeError`` for an argument of
        another type or name, and ``ValueError`` for an invalid one.
        """
        self._own_loop = OwnLoop("Admin")
        self._calls = CallsUnderWay("admin client")
        self._owned: Cluster | None = None
        if isinstance(where, Cluster):
            self.cluster = where
            self._brokers = "a shared cluster"
            return
        config = client_config(where, AdminConfig, settings)
        self._brokers = config.bootstrap
        self.cluster = self._owned = Cluster(
            parse_bootstrap(config.bootstrap),
            rng=rng or Random(),
            client_id=config.client_id,
            connect_seconds=config.connect_timeout_ms / 1000,
            operation_seconds=config.default_api_timeout_ms / 1000,
            tls=config.make_tls_context(),
            login=config.login,
        )

    def __repr__(self) -> str:
        return f"<Admin of {self._brokers}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that this object made. Calls under way on them raise ``ClientClosed``."""
        if self._owned is not None:
            self._own_loop.require()
            self._calls.close()
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
    create_partitions = _operation(topics.add_partitions, "create_partitions")
    delete_records = _operation(topics.delete_records)
    list_offsets = _operation(offsets.list_offsets)

    # Configurations

    describe_configs = _operation(configs.describe_configs)
    alter_configs = _operation(configs.alter_configs)
    replace_configs = _operation(configs.replace_configs)

    # Access control lists

    describe_acls = _operation(acls.describe_acls)
    create_acls = _operation(acls.create_acls)
    delete_acls = _operation(acls.delete_acls)

    # Client quotas

    describe_client_quotas = _operation(quotas.describe_client_quotas)
    alter_client_quotas = _operation(quotas.alter_client_quotas)
    # Delegation tokens

    create_delegation_token = _operation(tokens.create_token, "create_delegation_token")
    renew_delegation_token = _operation(tokens.renew_token, "renew_delegation_token")
    expire_delegation_token = _operation(tokens.expire_token, "expire_delegation_token")
    describe_delegation_tokens = _operation(tokens.describe_tokens, "describe_delegation_tokens")

    # Consumer groups

    list_groups = _operation(groups.list_groups)
    describe_groups = _operation(groups.describe_groups)
    delete_groups = _operation(groups.delete_groups)
    remove_members = _operation(groups.remove_members)
    remove_all_members = _operation(groups.remove_all_members)
    committed_offsets = _operation(group_offsets.committed_offsets)
    committed_offsets_of_groups = _operation(group_offsets.committed_offsets_of_groups)
    alter_group_offsets = _operation(group_offsets.commit_offsets, "alter_group_offsets")
    delete_group_offsets = _operation(group_offsets.delete_offsets, "delete_group_offsets")

    # Transactions

    describe_producers = _operation(producers.describe_producers)
    list_transactions = _operation(transactions.list_transactions)
    describe_transactions = _operation(transactions.describe_transactions)
    fence_producers = _operation(fencing.fence_producers)
    force_terminate_transaction = _operation(fencing.force_terminate_transaction)
    find_hanging_transactions = _operation(hanging_transactions.find_hanging_transactions)
    prepare_abort = _operation(_prepare_abort)
    carry_out_abort = _operation(_carry_out_abort)
    abort_transaction = _operation(txn_markers.write_abort_marker, "abort_transaction")

    async def transaction_history(self, transactional_id: str) -> "TransactionHistory":
        """Return what the transaction log holds of a transactional id, from the whole of its partition."""
        from oncelog.clients.admin.transaction_history import read_transaction_history

        require_type(transactional_id, str, "transactional_id", of="transaction_history")
        self._own_loop.require()
        async with self._calls.one():
            return await read_transaction_history(self.cluster, transactional_id)
