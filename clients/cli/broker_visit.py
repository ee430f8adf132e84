"""Visits to the addresses of brokers, for ``oncelog doctor``: what responds there, or why nothing does."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from oncelog.clients.cli.diagnosis import LISTENER_KEYS, View, Visit
from oncelog.clients.cli.directories import failed_directories
from oncelog.clients.cli.listener_probe import other_protocol, wanted_login
from oncelog.clients.cli.metadata_store import reaches_store
from oncelog.clients.cli.presented_certificate import presented_certificate
from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import AuthenticationFailed, BrokerSilent, ClientError, TlsFailed, Unreachable
from oncelog.clients.sasl import SaslClient
from oncelog.clients.security_config import SecurityConfig
from oncelog.clients.tls_failures import complaint_of
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataResponse

_BROKER_RESOURCE: Final = 4
_KRAFT_FEATURE: Final = "metadata.version"


class Means(NamedTuple):
    """With what to connect."""

    seconds: float
    security: SecurityConfig
    tls: ssl.SSLContext | None
    sasl: SaslClient | None


async def visit_all(addresses: Iterable[Address], means: Means) -> list[Visit]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_visit(address, means)) for address in addresses]
    return [task.result() for task in tasks]


async def _visit(address: Address, means: Means) -> Visit:
    seconds = means.seconds
    try:
        async with asyncio.timeout(seconds):
            found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return Visit(address=address, failure="no response from the name service")
    except (OSError, UnicodeError):
        return Visit(address=address, failure=f"the name {address.host} {Unreachable.UNRESOLVED} by this machine")
    resolved = tuple(dict.fromkeys(str(each[4][0]) for each in found))
    connection: Connection | None = None
    accepted: list[Address] = []
    try:
        connection = await connect(
            address,
            client_id="oncelog-cli",
            connect_seconds=seconds,
            request_seconds=seconds,
            tls=means.tls,
            sasl=means.sasl,
            on_accepted=lambda: accepted.append(address),
        )
        return await _talk(address, resolved, connection)
    except ClientError as error:
        visit, is_accepted = Visit(address=address, resolved=resolved), bool(accepted)
        is_mute = is_accepted and connection is None
        return await _failed(visit, error, means, is_accepted=is_accepted, is_mute=is_mute)
    finally:
        if connection is not None:
            connection.close()


async def _failed(visit: Visit, error: ClientError, means: Means, *, is_accepted: bool, is_mute: bool) -> Visit:
    """Return the visit with why it failed, and what to set if that is known.

    ``is_accepted``: a connection was made. ``is_mute``: it was, and no broker introduced itself on it.
    """
    reason = str(error).removeprefix(f"{visit.address}: ")
    if isinstance(error, TlsFailed):
        failure = reason.removesuffix(f": {error.advice}") + await _about_certificate(visit.address, error, means)
        return replace(visit, failure=failure, remedy=error.advice or None)
    if isinstance(error, AuthenticationFailed):
        return replace(visit, failure=reason, remedy=error.advice or None)
    other = await other_protocol(visit.address, means.security, means.seconds) if is_mute else None
    if other is None and is_accepted:
        other = await wanted_login(visit.address, means.security, means.tls, means.seconds)
    if other is not None:
        return replace(visit, failure=other.reason, remedy=other.advice)
    return replace(visit, failure=reason, is_silent=isinstance(error, BrokerSilent))


async def _about_certificate(address: Address, error: TlsFailed, means: Means) -> str:
    """Return what the certificate has that is not accepted; nothing for another failure."""
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return ""
    presented = await presented_certificate(address, means.seconds)
    return "" if presented is None else f"; {presented.about(complaint_of(cause))}"


async def _talk(address: Address, resolved: tuple[str, ...], connection: Connection) -> Visit:
    metadata = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
    brokers = {each.node_id: Address(each.host, each.port) for each in metadata.brokers}
    controller = metadata.controller_id if metadata.controller_id in brokers else None
    broker_id, config = await _who(connection, brokers)
    return Visit(
        address=address,
        resolved=resolved,
        view=View(
            cluster_id=metadata.cluster_id,
            controller_id=controller,
            brokers=brokers,
            is_kraft=_KRAFT_FEATURE in connection.versions.features.levels,
        ),
        broker_id=broker_id,
        config=config,
        versions=_versions(connection),
        reaches_store=None if broker_id is None else await reaches_store(connection, broker_id),
        failed_directories=(failed := await failed_directories(connection)).paths,
        refusing_logs=failed.refusing_logs,
    )


async def _who(connection: Connection, brokers: Iterable[int]) -> tuple[int | None, dict[str, str]]:
    """Return which of these brokers it is, and its listeners: a broker describes only its own configuration."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=list(LISTENER_KEYS)
            )
            for broker_id in brokers
        ]
    )
    try:
        described = await connection.send(request, DescribeConfigsResponse)
    except ClientError:
        return None, {}
    for result in described.results:
        if not result.error_code and result.resource_name.isdecimal():
            config = {each.name: each.value for each in result.configs if each.value}
            return int(result.resource_name), config
    return None, {}


def _versions(connection: Connection) -> dict[str, tuple[int, int]]:
    served = {key.name: connection.versions.range_of(key) for key in ApiKey}
    return {name: (found.first, found.last) for name, found in served.items() if found is not None}
