"""Brokers of a cluster that answers, which this machine cannot reach at the addresses that they advertise."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from clients.cluster import Cluster
from clients.errors import ClientError, Remedy

_SECONDS: Final = 3.0
_SILENT_SECONDS: Final = 3.0
"""How long a command waits for the first record before it looks whether the leaders can be reached."""
DOCTOR_ADVICE: Final = "`oncelog doctor` shows which advertised addresses this machine can use, and what to set instead"


class AdvertisedUnreachable(ClientError):
    """A broker that is needed cannot be reached at the address that it advertises."""

    remedy = Remedy.RETRY


async def unreachable_leaders(cluster: Cluster, topics: Collection[str]) -> list[str]:
    """Return a sentence for each leader of the topics to which no connection can be made within 3 s."""
    leaders: set[int] = set()
    for topic in (await cluster.refresh(list(topics))).topics:
        leaders |= {partition.leader_id for partition in topic.partitions if partition.leader_id in cluster.brokers}
    sentences: dict[int, str] = {}

    async def visit(node_id: int) -> None:
        address = cluster.brokers[node_id]
        try:
            async with asyncio.timeout(_SECONDS):
                await cluster.connection_to(node_id)
        except TimeoutError:
            sentences[node_id] = f"broker {node_id} does not answer at the address that it advertises, {address}"
        except ClientError as error:
            reason = str(error).removeprefix(f"{address}: ")
            sentences[node_id] = (
                f"broker {node_id} cannot be reached at the address that it advertises, {address}: {reason}"
            )

    async with asyncio.TaskGroup() as group:
        for node_id in leaders:
            group.create_task(visit(node_id))
    return [sentence for _, sentence in sorted(sentences.items())]


async def explain_silence(cluster: Cluster, topics: Collection[str], is_silent: Callable[[], bool]) -> str | None:
    """Return, after 3 s, why nothing happens if it is for the addresses that the leaders advertise; None otherwise."""
    await asyncio.sleep(_SILENT_SECONDS)
    if not is_silent():
        return None
    try:
        return "; ".join(await unreachable_leaders(cluster, topics)) or None
    except ClientError:  # No broker answers at all: the command itself fails of it.
        return None
