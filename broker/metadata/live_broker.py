"""Whether the broker that registered an id is alive: a request is sent to the address that it registered.

A registration outlives a killed broker until its session expires, so it proves nothing by itself. Only the broker of
that id describes its own configuration, so another process that listens on the same port now is not taken for it.
"""

from typing import Final

from oncelog.broker.security.peer_security import PeerSecurity
from oncelog.clients.connection import Address, connect
from oncelog.clients.errors import ClientError
from oncelog.coordinator.controller.config_changes import ResourceType
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_CONNECT_SECONDS: Final = 1.0
_REQUEST_SECONDS: Final = 2.0


async def is_alive(registration: BrokerRegistration, listener_name: str, security: PeerSecurity) -> bool:
    """Return whether a broker of this id responds on the inter-broker listener, within 3 s."""
    endpoint = next((each for each in registration.endpoints if each.listener == listener_name), None)
    if endpoint is None:
        return False
    try:
        connection = await connect(
            Address(endpoint.host, endpoint.port),
            client_id=f"broker-{registration.broker_id}",
            connect_seconds=_CONNECT_SECONDS,
            request_seconds=_REQUEST_SECONDS,
            tls=security.tls,
            sasl=security.sasl,
        )
    except ClientError:
        return False
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name=str(registration.broker_id),
        configuration_keys=["broker.id"],
    )
    try:
        response = await connection.send(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    except ClientError:
        return False
    finally:
        connection.close()
    return [result.error_code for result in response.results] == [ErrorCode.NONE]
