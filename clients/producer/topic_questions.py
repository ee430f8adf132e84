"""Topics that records are sent to for the first time: brokers are asked about each by one task, for all who wait.

A question goes on until the topic is known, or refused for a reason that does not pass. For how long somebody waits is
its own affair; a question that nobody waits for any more ends by itself.
"""

import asyncio
import logging
from collections.abc import Callable

from oncelog.clients.background_tasks import BackgroundTasks
from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import BrokerRefused, ClientError, ProducerClosed, Refusal, error_code
from oncelog.clients.retry import Backoff
from oncelog.protocol.errors import ErrorCode

_log = logging.getLogger(__name__)


class _Question:
    """What is asked about one topic, and by how many."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.waiting = 0
        self.error: ClientError | None = None
        """Why the topic was not known when brokers were last asked."""
        self.task: asyncio.Task[ClientError | None]


class TopicQuestions:
    """The questions of one producer. Brokers may create a topic that they are asked about."""

    def __init__(self, cluster: Cluster, backoff: Backoff, on_topic: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._backoff = backoff
        self._on_topic = on_topic
        """Called with the name of a topic when it has become known."""
        self._tasks = BackgroundTasks("producer")
        self._questions: dict[str, _Question] = {}
        self._is_closed = False

    async def ask(self, topic: str) -> None:
        """Return when a topic is known. Raises ``BrokerRefused``, ``ProducerClosed``, and what else does not pass."""
        if self._cluster.metadata.partition_count(topic):
            self._on_topic(topic)
            return
        if self._is_closed:
            raise ProducerClosed("the producer is closed")
        question = self._questions.get(topic) or self._begin(topic)
        question.waiting += 1
        try:
            await asyncio.wait([question.task])
        finally:
            question.waiting -= 1
        if question.task.cancelled():
            raise ProducerClosed("the producer is closed")
        error = question.task.result()
        if error is not None:
            raise error.with_traceback(None)

    def error_of(self, topic: str) -> ClientError | None:
        """Return why a topic was not known when brokers were last asked, for a caller that gives up just now.

        An error is kept as long as its question: a producer that names a thousand topics which do not exist keeps none.
        """
        question = self._questions.get(topic)
        return None if question is None else question.error

    async def close(self) -> None:
        """End all questions; whoever waits is told that the producer is closed."""
        self._is_closed = True
        await self._tasks.stop()

    def _begin(self, topic: str) -> _Question:
        question = self._questions[topic] = _Question(topic)
        question.task = self._tasks.spawn(self._run(question), f"question about {topic}", log_failure=False)
        return question

    async def _run(self, question: _Question) -> ClientError | None:
        """Ask until it is known, or nobody waits; return the error if it does not pass."""
        topic, attempt = question.topic, 0
        try:
            while question.waiting:
                error = await self._ask_once(topic)
                if error is None:
                    self._on_topic(topic)
                    return None
                if not error.is_retriable:
                    return error
                question.error = error
                await asyncio.sleep(self._backoff.pause_seconds(attempt))
                attempt += 1
            return None
        finally:
            del self._questions[topic]

    async def _ask_once(self, topic: str) -> ClientError | None:
        try:
            response = await self._cluster.refresh([topic], create=True)
        except ClientError as error:
            _log.info("no metadata of %s: %s", topic, error)
            return error
        if self._cluster.metadata.partition_count(topic):
            return None
        codes = [error_code(each.error_code) for each in response.topics if each.name == topic and each.error_code]
        code = codes[0] if codes else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return BrokerRefused(f"topic {topic}", Refusal(error=code))
