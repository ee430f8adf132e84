"""Lists of which every broker has a part: groups and transactional ids, each at its coordinator."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import require_success
from oncelog.clients.fan_out import call_every_broker
from oncelog.protocol.schema import Message

R = TypeVar("R", bound=Message)
Listing = TypeVar("Listing")


async def list_of_all_brokers(
    cluster: Cluster,
    request: Message,
    response_type: type[R],
    error_number: Callable[[R], int],
    listings: Callable[[int, R], Iterable[Listing]],
    *,
    at_least: int = 0,
) -> list[Listing]:
    """Return the lists of all brokers; ``listings`` takes a broker's id and its response. Raises ``BrokerRefused``."""
    found: list[Listing] = []
    responses = await call_every_broker(
        cluster, request, response_type, lambda response: [error_number(response)], at_least=at_least
    )
    for node_id, response in responses:
        require_success(f"broker {node_id}", error_number(response))
        found += listings(node_id, response)
    return found
