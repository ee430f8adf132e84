"""UpdateMetadata (API key 6): versions 0-8, flexible from 6.

The controller tells brokers of live brokers and of all partitions' leaders. Gone since Kafka 4.0.

1: several endpoints for a broker. 2: racks. 3: listener names. 4: offline replicas. 5: broker epoch; partitions grouped
by topic. 7: topic ids. 8: whether the controller is a KRaft one (KIP-866); whether every topic is named (``type``).

Tagged fields of our own: ``sequence``, the position of the request among those of one controller epoch; ``epoch``, that
of a live broker's registration; ``eligible_leader_replicas``, ``last_leader`` and ``last_known_elr``, who may
lead outside of the ISR; ``recovery``, what a partition without a leader waits for.
"""

from typing import Final

from oncelog.protocol.schema import (
    OWN_TAGS,
    ZERO_UUID,
    Message,
    array,
    array_of,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)

INCREMENTAL: Final = 1
"""The ``type`` of an update of some topics; those that it does not name have not changed."""
FULL: Final = 2
"""The ``type`` of an update that names every partition; what it does not name does not exist."""


class UpdateMetadataLogEnd(Message):
    broker_id: int = int32("6+", default=0)
    leader_epoch: int = int32("6+", default=-1)
    offset: int = int64("6+", default=-1)


class UpdateMetadataRecovery(Message):
    strategy: str = string("6+", default="")
    waits_for: list[int] = array_of(int32, "6+", default_factory=list)
    elects: int = int32("6+", default=-1)
    decides_at_ms: int = int64("6+", default=-1)
    log_ends: list[UpdateMetadataLogEnd] = array(UpdateMetadataLogEnd, "6+", default_factory=list)


class UpdateMetadataPartitionState(Message):
    topic_name: str = string("0-4", default="")
    partition_index: int = int32("0+", default=0)
    controller_epoch: int = int32("0+", default=0)
    leader: int = int32("0+", default=0)
    leader_epoch: int = int32("0+", default=0)
    isr: list[int] = array_of(int32, "0+", default_factory=list)
    zk_version: int = int32("0+", default=0)
    replicas: list[int] = array_of(int32, "0+", default_factory=list)
    offline_replicas: list[int] = array_of(int32, "4+", default_factory=list)
    eligible_leader_replicas: list[int] = array_of(int32, "6+", default_factory=list, tag=OWN_TAGS)
    last_leader: int = int32("6+", default=-1, tag=OWN_TAGS + 1)
    last_known_elr: list[int] = array_of(int32, "6+", default_factory=list, tag=OWN_TAGS + 3)
    recovery: UpdateMetadataRecovery | None = struct(UpdateMetadataRecovery, "6+", default=None, tag=OWN_TAGS + 2)


class UpdateMetadataTopicState(Message):
    topic_name: str = string("5+", default="")
    topic_id: bytes = uuid("7+", default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "5+", default_factory=list
    )


class UpdateMetadataEndpoint(Message):
    port: int = int32("1+", default=0)
    host: str = string("1+", default="")
    listener: str = string("3+", default="")
    security_protocol: int = int16("1+", default=0)


class UpdateMetadataBroker(Message):
    id: int = int32("0+", default=0)
    v0_host: str = string("0", default="")
    v0_port: int = int32("0", default=0)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", default_factory=list)
    rack: str | None = string("2+", default="", nullable="0+")
    epoch: int = int64("6+", default=-1, tag=OWN_TAGS)


class UpdateMetadataRequest(Message, api_key=6, versions="0-8", flexible="6+"):
    controller_id: int = int32("0+", default=0)
    is_k_raft_controller: bool = boolean("8+", default=False)
    type: int = int8("8+", default=0, tag=0)
    controller_epoch: int = int32("0+", default=0)
    broker_epoch: int = int64("5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4", default_factory=list
    )
    topic_states: list[UpdateMetadataTopicState] = array(
        UpdateMetadataTopicState, "5+", default_factory=list, shared=True
    )
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker, "0+", default_factory=list, shared=True)
    sequence: int = int64("6+", default=-1, tag=OWN_TAGS)


class UpdateMetadataResponse(Message, api_key=6, versions="0-8", flexible="6+"):
    error_code: int = int16("0+", default=0)
