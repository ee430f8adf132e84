"""Which broker this is, and of which cluster: what the configuration says, what the data directory says, or anew.

A broker that is alone names its cluster itself, and its cluster's id survives the loss of the embedded store, because
the directory has it too. Of a cluster on ZooKeeper only ZooKeeper knows the id. When it has lost its data a new cluster
begins there, and directories of the old one are refused, because their topics are not known to it.

A broker without an id of its own gets one beyond ``reserved.broker.max.id``, counted by ``/brokers/seqid``.
"""

import random
from typing import Final, NamedTuple

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.storage.disk import Disk
from oncelog.broker.storage.meta_properties import read_meta_properties
from oncelog.coordinator.controller.membership import cluster_id, generated_broker_id, prepare
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session

_FIRST_BROKER_ID: Final = 1


class Identity(NamedTuple):
    """One broker of one cluster."""

    broker_id: int
    cluster_id: str


async def identify(config: BrokerConfig, disk: Disk, session: Session, rng: random.Random) -> Identity:
    """Return the broker's identity; the cluster has its id afterwards."""
    owner = read_meta_properties(disk, config.data_dir)
    owned_by, owned_cluster = (None, None) if owner is None else (owner.broker_id, owner.cluster_id)
    _check(config)
    await prepare(session)
    wanted = owned_cluster or config.cluster_id if config.is_embedded else config.cluster_id
    if wanted is not None:
        await session.create(paths.CLUSTER_ID, znodes.encode_cluster_id(wanted))  # Unless it is there.
    broker_id = config.broker_id if config.broker_id >= 0 else owned_by
    if broker_id is None:
        broker_id = await _new_broker_id(config, session)
    return Identity(broker_id, await cluster_id(session, rng))


def _check(config: BrokerConfig) -> None:
    """Refuse a configuration in which chosen and generated ids may be the same. Raises ``ConfigError``."""
    highest = config.reserved_broker_max_id
    if not config.is_embedded and config.broker_id_generation_enable and config.broker_id > highest:
        raise ConfigError(
            f"broker.id={config.broker_id} is larger than reserved.broker.max.id={highest}: "
            "raise that, or set broker.id.generation.enable=false"
        )


async def _new_broker_id(config: BrokerConfig, session: Session) -> int:
    if config.is_embedded:
        return _FIRST_BROKER_ID
    if not config.broker_id_generation_enable:
        raise ConfigError("broker.id is missing: set it (--broker-id), or broker.id.generation.enable=true")
    return await generated_broker_id(session, config.reserved_broker_max_id)
