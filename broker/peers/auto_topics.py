"""Topics that are created when a request needs them: auto-created ones, and the two internal topics.

However many requests need a topic at once, it is created once; all wait for that, for a bounded time, and until this
broker has received the new topic's metadata. A creation that takes longer goes on, and is found done by the next
request. What keeps an internal topic from being created (not enough brokers yet) is in the log, because its clients
only see COORDINATOR_NOT_AVAILABLE.

If there are fewer brokers than the replication factor because some have left lately, the client is to retry: they may
be on their way back, from a restart say. Else it gets the error that says so.

Topics that a client's request needs count for its quota ``controller_mutation_rate``, with ``num.partitions`` each, on
this broker: beyond it they are not created, and the client finds them unknown and asks again, as with Kafka. Topics
that could not be created do not count. Internal topics count for no client.

One request can name thousands of topics. They are created in portions of ``TOPICS_AT_ONCE``, each by one task and
one request to the controller: as many tasks as topics would all have their turn in the same turn of the loop.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.topic_config import group_metadata_topic_configs, transaction_state_topic_configs
from oncelog.broker.peers.controller_client import ControllerClient
from oncelog.broker.peers.departures import Departures
from oncelog.broker.process.supervisor import Supervisor
from oncelog.broker.quotas.mutations import Mutations
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.cluster_image import MetadataCache, MetadataChange
from oncelog.coordinator.controller.partition_states import chunks
from oncelog.coordinator.controller.topic_plan import NewTopic
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC_NAME

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE: Final = 100
_LONGEST_WAIT_SECONDS: Final = 2.0
_REPEAT_SECONDS: Final = 30.0
"""After which the same refusal of an internal topic is logged again: its clients retry twice a second."""
_EXISTS: Final = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
_MAY_BE_CREATED: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION})
_FINAL_ERRORS: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR})
"""Errors that a client can do something about. After any other it can only retry."""

_Creation: TypeAlias = "asyncio.Task[dict[str, ErrorCode]]"
"""The creation of some topics. Its result has those that did not come into being."""


class _Expected:
    """Topics of one creation that are not in this broker's metadata yet."""

    __slots__ = ("known", "names")

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.known = asyncio.Event()


class KnownRefusals:
    """The last refusal of each topic that is in the log. Pure: the time is an argument, in seconds."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def is_news(self, name: str, said: str, now: float) -> bool:
        """Return whether this is to be logged: it is new, or was logged long ago."""
        before, logged_at = self._said.get(name, ("", now))
        if said == before and now < logged_at + _REPEAT_SECONDS:
            return False
        self._said[name] = (said, now)
        return True


class AutoTopicCreation:
    """Creates topics through the controller, each at most once at a time."""

    def __init__(
        self, config: BrokerConfig, controller: ControllerClient, metadata: MetadataCache, supervisor: Supervisor
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._supervisor = supervisor
        self._refusals = KnownRefusals()
        self._departures = Departures()
        self._expected: dict[_Expected, None] = {}
        """Topics that are created and not yet in the metadata."""
        metadata.add_listener(self._on_metadata_change)
        self._under_way: dict[str, _Creation] = {}

    async def create(self, names: Collection[str], mutations: Mutations | None = None) -> dict[str, ErrorCode]:
        """Create topics with valid names that do not exist; return the error of each that does not exist yet.

        ``mutations`` are those of the client that needs them; None: they count for no client.
        """
        new = [name for name in names if name not in self._under_way]
        refused: set[str] = set()
        if mutations is not None:
            refused = {name for name in new if mutations.admit(self._config.num_partitions) is not None}
        if refused:
            self._log_quota(refused)
        for portion in chunks([name for name in new if name not in refused], TOPICS_AT_ONCE):
            self._begin(portion, mutations)
        tasks = {name: self._under_way[name] for name in names if name not in refused}
        if tasks:
            await asyncio.wait(set(tasks.values()), timeout=_LONGEST_WAIT_SECONDS)
        errors = {name: error for name, task in tasks.items() if (error := _outcome(task, name))}
        return errors | dict.fromkeys(refused, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _begin(self, names: Sequence[str], mutations: Mutations | None) -> None:
        what = f"create {len(names)} topics, the first is {names[0]}"
        task = self._supervisor.spawn(self._create(names, mutations), what)
        self._under_way.update(dict.fromkeys(names, task))
        task.add_done_callback(lambda _: self._end(names))

    def _end(self, names: Iterable[str]) -> None:
        for name in names:
            del self._under_way[name]

    async def _create(self, names: Sequence[str], mutations: Mutations | None) -> dict[str, ErrorCode]:
        results = await self._controller.create_topics([self._new_topic(name) for name in names])
        created: set[str] = set()
        errors: dict[str, ErrorCode] = {}
        for name, result in zip(names, results, strict=True):
            if mutations is not None and result.code not in _MAY_BE_CREATED:
                mutations.give_back(self._config.num_partitions)
            if result.code in _EXISTS:
                created.add(name)
            else:
                self._log_refusal(name, result)
                errors[name] = self._error_of(result.code)
        unknown = await self._until_known(created)
        return errors | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _error_of(self, code: ErrorCode) -> ErrorCode:
        """Return what the client gets that needed the topic."""
        now = asyncio.get_running_loop().time()
        if code is ErrorCode.INVALID_REPLICATION_FACTOR and self._departures.lately(now):
            return ErrorCode.LEADER_NOT_AVAILABLE
        return code if code in _FINAL_ERRORS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _until_known(self, names: set[str]) -> set[str]:
        """Wait until topics are in this broker's metadata, for a bounded time. Return those that are not."""
        expected = _Expected({name for name in names if not self._metadata.topic_exists(name)})
        if expected.names:
            self._expected[expected] = None
            try:
                async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                    await expected.known.wait()
            except TimeoutError:
                pass  # The caller returns an error for them.
            finally:
                del self._expected[expected]
        return expected.names

    def _on_metadata_change(self, change: MetadataChange) -> None:
        now = asyncio.get_running_loop().time()
        self._departures.note(change.before.brokers.keys(), change.after.brokers.keys(), now)
        for expected in self._expected:
            expected.names -= {name for name in expected.names & change.topics if change.after.topic(name) is not None}
            if not expected.names:
                expected.known.set()

    def _new_topic(self, name: str) -> NewTopic:
        config = self._config
        if name == GROUP_METADATA_TOPIC_NAME:
            return NewTopic(
                name=name,
                partition_count=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs=group_metadata_topic_configs(config),
            )
        if name == TRANSACTION_STATE_TOPIC_NAME:
            return NewTopic(
                name=name,
                partition_count=config.transaction_state_log_num_partitions,
                replication_factor=config.transaction_state_log_replication_factor,
                configs=transaction_state_topic_configs(config),
            )
        return NewTopic(name=name)

    def _log_quota(self, refused: Collection[str]) -> None:
        """Log topics that a client's quota does not allow now. Clients repeat their requests, so not every time."""
        key = "controller_mutation_rate"
        if self._refusals.is_news(key, key, asyncio.get_running_loop().time()):
            logger.warning("%d topics, one is %s, were not created: their client's %s", len(refused), min(refused), key)

    def _log_refusal(self, name: str, error: ApiError) -> None:
        hint = ""
        if name in INTERNAL_TOPICS and error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
            offsets = name == GROUP_METADATA_TOPIC_NAME
            key = "offsets.topic" if offsets else "transaction.state.log"
            hint = f" (start more brokers, or lower {key}.replication.factor)"
        said = f"{error.code.name} {error.message or ''}{hint}"
        if name not in INTERNAL_TOPICS or self._refusals.is_news(name, said, asyncio.get_running_loop().time()):
            logger.warning("%s was not created: %s", name, said)


def _outcome(task: _Creation, name: str) -> ErrorCode:
    """Return the error of a topic; NONE once the topic is known."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return task.result().get(name, ErrorCode.NONE)
