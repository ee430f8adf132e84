"""What a controller might tell a broker about a cluster of several, for tests of the handlers that repeat it."""

from collections.abc import Mapping, Sequence

from oncelog.broker.parts import Broker
from oncelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRecovery,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


def broker_with(id_: int, *listeners: str, rack: str | None = None) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(host=f"host{id_}", port=9000 + id_, listener=listener, security_protocol=0)
        for listener in listeners or ("PLAINTEXT",)
    ]
    return UpdateMetadataBroker(id=id_, endpoints=endpoints, rack=rack)


def partition(
    index: int,
    leader: int,
    replicas: Sequence[int],
    isr: Sequence[int],
    offline: Sequence[int] = (),
    *,
    eligible: Sequence[int] = (),
    last_leader: int = -1,
    last_known: Sequence[int] = (),
    recovery: UpdateMetadataRecovery | None = None,
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        leader=leader,
        leader_epoch=5,
        replicas=list(replicas),
        isr=list(isr),
        offline_replicas=list(offline),
        eligible_leader_replicas=list(eligible),
        last_leader=last_leader,
        last_known_elr=list(last_known),
        recovery=recovery,
    )


def tell(
    broker: Broker,
    brokers: Sequence[UpdateMetadataBroker],
    topics: Mapping[str, Sequence[UpdateMetadataPartitionState]],
    *,
    controller_id: int = 1,
) -> None:
    request = UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=1_000,
        live_brokers=list(brokers),
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name, topic_id=name.encode().ljust(16, b"."), partition_states=list(partitions)
            )
            for name, partitions in topics.items()
        ],
    )
    assert broker.metadata.apply_update_metadata(request) == 0
