"""Who may read and change which znode: the rules of Kafka 3.9."""

import pytest

from oncelog.coordinator.metadata_store import acl_znodes, paths, token_znodes
from oncelog.coordinator.metadata_store.znode_access import PROTECTED_ROOTS, ZnodeAccess, access_of


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", ZnodeAccess.READABLE),
        ("/brokers/ids/1", ZnodeAccess.READABLE),
        ("/controller", ZnodeAccess.READABLE),
        ("/config", ZnodeAccess.READABLE),
        ("/config/topics/t", ZnodeAccess.READABLE),
        ("/config/changes/config_change_0000000001", ZnodeAccess.READABLE),
        ("/kafka-acl/Topic/t", ZnodeAccess.READABLE),
        ("/delegation_token", ZnodeAccess.READABLE),
        ("/delegation_token/token_changes/token_change_0000000001", ZnodeAccess.READABLE),
        ("/delegation_token/tokens", ZnodeAccess.SECRET),
        ("/delegation_token/tokens/ua5cey91Qx2ffVPJ39yBcw", ZnodeAccess.SECRET),
        ("/config/users", ZnodeAccess.SECRET),
        ("/config/users/alice", ZnodeAccess.SECRET),
        ("/config/users/alice/clients/app", ZnodeAccess.SECRET),
        ("/config/brokers/1", ZnodeAccess.SECRET),
        ("/consumers", ZnodeAccess.OPEN),
        ("/consumers/g", ZnodeAccess.READABLE),
    ],
)
def test_access_of_a_znode_is_that_of_kafka(path: str, access: ZnodeAccess) -> None:
    assert access_of(path) is access


def test_znodes_of_brokers_lie_below_protected_roots() -> None:
    """So that `oncelog znodes protect` leaves none open, but the one that is to be."""
    places = (
        *paths.PERSISTENT_PATHS,
        *acl_znodes.PERSISTENT_PATHS,
        *token_znodes.PERSISTENT_PATHS,
        paths.CONTROLLER,
        paths.CONTROLLER_EPOCH,
        paths.CLUSTER_ID,
        paths.FEATURE,
    )
    left = [place for place in places if f"/{place.split('/')[1]}" not in PROTECTED_ROOTS]
    assert left == ["/consumers"]
