"""What the load is called in the cluster: topics, transactional ids, groups. Each client has some of its own.

Writers of all clients share one topic of inputs, so that an open transaction of any is in the way of all readers. Each
client's worker reads all of it, in a group of its own, and writes to an output topic of its own.
"""

from typing import Final

from oncelog.protocol.topic_partition import TopicPartition

INPUTS: Final = "inputs"
PARTITIONS: Final = 6
"""Of each topic."""


def outputs(client: str) -> str:
    return f"outputs-{client}"


def group(client: str) -> str:
    return f"group-{client}"


def writer_id(client: str) -> str:
    """The transactional id of a client's writer."""
    return f"writer-{client}"


def worker_id(client: str) -> str:
    """The transactional id of the worker that consumes, transforms and produces."""
    return f"worker-{client}"


def input_partitions() -> list[TopicPartition]:
    return [TopicPartition(INPUTS, index) for index in range(PARTITIONS)]
