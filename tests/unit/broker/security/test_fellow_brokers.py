"""Which requests are taken for those of another broker."""

import pytest

from oncelog.broker.config.listeners import Listeners
from oncelog.broker.dispatch.request import ConnectionInfo, Principal, RequestContext
from oncelog.broker.security.acl_authorizer import AclAuthorizer
from oncelog.broker.security.authorizer import AllowAll
from oncelog.broker.security.fellow_brokers import FellowBrokers
from oncelog.coordinator.controller.cluster_image import BrokerImage, ClusterImage, MetadataCache
from oncelog.protocol.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    ResourcePattern,
)

LISTENERS = Listeners(bound=(), advertised=(), inter_broker="INTERNAL")


def metadata() -> MetadataCache:
    cache = MetadataCache()
    cache.image = ClusterImage(brokers={each: BrokerImage(id=each, endpoints={}) for each in (1, 2)})
    return cache


def authorizer() -> AclAuthorizer:
    """Brokers may do CLUSTER_ACTION, Alice may alter the cluster."""
    made = AclAuthorizer(frozenset())
    rights = (("brokers", AclOperation.CLUSTER_ACTION), ("alice", AclOperation.ALTER))
    entries = frozenset(AccessControlEntry(f"User:{who}", "*", what, AclPermissionType.ALLOW) for who, what in rights)
    made.change({ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME): entries})
    return made


def request(client_id: str | None = "broker-2", *, user: str = "brokers", listener: str = "INTERNAL") -> RequestContext:
    connection = ConnectionInfo(client_host="h", listener_name=listener, principal=Principal("User", user))
    return RequestContext(7, 1, client_id, connection)


def test_request_of_a_broker_is_one() -> None:
    assert FellowBrokers(authorizer(), LISTENERS, metadata()).sent(request())


@pytest.mark.parametrize(
    "other",
    [
        request(user="alice"),
        request(listener="EXTERNAL"),
        request("broker-3"),
        request("broker-2-fetcher"),
        request("broker-"),
        request("kafka-topics"),
        request(None),
    ],
    ids=["right", "listener", "not live", "more", "no id", "client", "no client id"],
)
def test_request_that_lacks_one_sign_of_a_broker_is_a_clients(other: RequestContext) -> None:
    assert not FellowBrokers(authorizer(), LISTENERS, metadata()).sent(other)


def test_request_without_an_authorizer_is_a_clients() -> None:
    assert not FellowBrokers(AllowAll(), LISTENERS, metadata()).sent(request())
