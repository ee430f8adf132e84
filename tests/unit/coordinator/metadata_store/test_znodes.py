"""The znodes' JSON: what Apache Kafka 3.9 writes and reads."""

import json
from dataclasses import replace

import pytest

from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.znodes import (
    BrokerRegistration,
    FinalizedFeatures,
    LeaderRecoveryState,
    MalformedZnode,
    PartitionState,
    ProducerIdBlock,
    RegisteredEndpoint,
    ReplicaAssignment,
    SecurityProtocol,
    TopicAssignment,
)
from oncelog.protocol.schema import ZERO_UUID
from oncelog.protocol.topic_partition import TopicPartition

BROKER = BrokerRegistration(
    broker_id=3,
    endpoints=(
        RegisteredEndpoint(listener="CLIENT", host="h1", port=9092),
        RegisteredEndpoint(listener="REPL", host="::1", port=9093, security_protocol=SecurityProtocol.SASL_SSL),
    ),
    rack="dc1",
    features={"transaction.version": (0, 2)},
)


def test_broker_registration_has_kafkas_form() -> None:
    data = znodes.encode_broker(BROKER, 1_500)
    assert json.loads(data) == {
        "version": 5,
        "host": "h1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1500",
        "endpoints": ["CLIENT://h1:9092", "REPL://[::1]:9093"],
        "rack": "dc1",
        "listener_security_protocol_map": {"CLIENT": "PLAINTEXT", "REPL": "SASL_SSL"},
        "features": {"transaction.version": {"min_version": 0, "max_version": 2}},
    }
    assert znodes.decode_broker(3, data) == BROKER


def test_registrations_of_older_brokers() -> None:
    second = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092"]}'
    assert znodes.decode_broker(1, second) == BrokerRegistration(
        broker_id=1, endpoints=(RegisteredEndpoint(listener="PLAINTEXT", host="h", port=9092),)
    )


def test_topic_znode_has_kafkas_form() -> None:
    moving = ReplicaAssignment(replicas=(3, 1, 2), adding=(3,), removing=(2,))
    others = {index: ReplicaAssignment(replicas=(2, 1)) for index in range(10)}
    assignment = TopicAssignment(topic_id=bytes(range(16)), partitions={10: moving, **others})
    data = znodes.encode_topic(assignment)
    assert json.loads(data) == {
        "version": 3,
        "partitions": {**{str(index): [2, 1] for index in range(10)}, "10": [3, 1, 2]},
        "adding_replicas": {"10": [3]},
        "removing_replicas": {"10": [2]},
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    }
    decoded = znodes.decode_topic(data)
    assert decoded == assignment
    assert list(decoded.partitions) == list(range(11))
    first = znodes.decode_topic(b'{"version":1,"partitions":{"0":[5]}}')
    assert first == TopicAssignment(topic_id=ZERO_UUID, partitions={0: ReplicaAssignment(replicas=(5,))})


def test_partition_state_has_kafkas_form() -> None:
    state = PartitionState(leader=1, leader_epoch=7, isr=(1, 2), controller_epoch=3)
    data = znodes.encode_partition_state(state)
    assert json.loads(data) == {
        "controller_epoch": 3,
        "leader": 1,
        "version": 1,
        "leader_epoch": 7,
        "isr": [1, 2],
    }
    assert znodes.decode_partition_state(data) == state
    unclean = PartitionState(
        leader=1,
        leader_epoch=7,
        isr=(1,),
        controller_epoch=3,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )
    assert json.loads(znodes.encode_partition_state(unclean))["leader_recovery_state"] == 1
    assert znodes.decode_partition_state(znodes.encode_partition_state(unclean)) == unclean


def test_partition_state_remembers_eligible_replicas_beside_kafkas_fields() -> None:
    state = PartitionState(
        leader=-1,
        leader_epoch=7,
        isr=(1,),
        controller_epoch=3,
        elr=(3, 2),
        epochs={1: 4294967300, 3: 20},
        last_leader=1,
        judged_at=9,
        last_known_elr=(4,),
    )
    data = znodes.encode_partition_state(state)
    assert json.loads(data) == {
        "controller_epoch": 3,
        "leader": -1,
        "version": 1,
        "leader_epoch": 7,
        "isr": [1],
        "elr": [3, 2],
        "epochs": {"1": 4294967300, "3": 20},
        "last_leader": 1,
        "judged_at": 9,
        "last_known_elr": [4],
    }
    assert znodes.decode_partition_state(data) == state


def test_registration_says_since_when_its_logs_are_intact() -> None:
    intact = replace(BROKER, intact_since=5, intact_until=9)
    data = znodes.encode_broker(intact, 1_500)
    assert {key: json.loads(data)[key] for key in ("intact_since", "intact_until")} == {
        "intact_since": 5,
        "intact_until": 9,
    }
    assert znodes.decode_broker(3, data) == intact
    assert b"intact" not in znodes.encode_broker(replace(BROKER, intact_since=5), 1_500)
    ended = replace(BROKER, intact_before=((2, 3), (5, 9)))
    assert znodes.decode_broker(3, znodes.encode_broker(ended, 1_500)) == ended


def test_registration_says_what_minimum_the_broker_was_started_with() -> None:
    started = replace(BROKER, min_insync_replicas=2)
    assert znodes.decode_broker(3, znodes.encode_broker(started, 1_500)) == started
    assert b"insync" not in znodes.encode_broker(BROKER, 1_500)


def test_small_znodes_have_kafkas_form() -> None:
    assert json.loads(znodes.encode_controller(4, 99)) == {
        "version": 2,
        "brokerid": 4,
        "timestamp": "99",
        "kraftControllerEpoch": -1,
    }
    assert znodes.decode_controller(znodes.encode_controller(4, 99)) == 4
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(12)) == 12
    assert json.loads(znodes.encode_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert znodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    block = ProducerIdBlock(broker_id=2, first=1_000, last=1_999)
    assert json.loads(znodes.encode_producer_id_block(block)) == {
        "version": 1,
        "broker": 2,
        "block_start": "1000",
        "block_end": "1999",
    }
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block


def test_config_znode_has_kafkas_form() -> None:
    assert json.loads(znodes.encode_config({"a": "1"})) == {"version": 1, "config": {"a": "1"}}
    assert znodes.decode_config(b'{"version":1,"config":{"a":"1","b":""}}') == {"a": "1", "b": ""}
    assert znodes.decode_config(b"") == {}
    assert json.loads(znodes.encode_config_change("topics/t")) == {"version": 2, "entity_path": "topics/t"}
    assert znodes.decode_config_change(b'{"version":2,"entity_path":"topics/t"}') == "topics/t"
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change(old) == "topics/t"


def test_feature_znode_has_kafkas_form() -> None:
    features = FinalizedFeatures(levels={"transaction.version": 2})
    data = znodes.encode_features(features)
    assert json.loads(data) == {
        "version": 2,
        "status": 1,
        "features": {"transaction.version": {"max_version_level": 2}},
    }
    assert znodes.decode_features(data) == features
    disabled = b'{"version":2,"status":0,"features":{"transaction.version":{"max_version_level":2}}}'
    assert znodes.decode_features(disabled) == FinalizedFeatures()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", b'{"partitions":3}', b'{"endpoints":["nonsense"]}'])
def test_malformed_znode_is_not_decoded(data: bytes) -> None:
    for decode in (
        lambda: znodes.decode_topic(data),
        lambda: znodes.decode_partition_state(data),
        lambda: znodes.decode_broker(1, data),
        lambda: znodes.decode_controller(data),
        lambda: znodes.decode_producer_id_block(data),
        lambda: znodes.decode_cluster_id(data),
        lambda: znodes.decode_config_change(data),
        lambda: znodes.decode_features(data),
    ):
        with pytest.raises(MalformedZnode):
            decode()


def test_uuids_are_kafkas_text() -> None:
    assert znodes.decode_uuid(znodes.encode_uuid(b"\xff" * 16)) == b"\xff" * 16
    assert znodes.encode_uuid(b"\xff" * 16) == "_____________________w"
    with pytest.raises(MalformedZnode):
        znodes.decode_uuid("too-short")


def test_paths_of_znodes_are_kafkas() -> None:
    partition = TopicPartition("t", 3)
    assert paths.partition_state(partition) == "/brokers/topics/t/partitions/3/state"
    assert paths.broker(1) == "/brokers/ids/1"
    assert paths.topic_config("t") == "/config/topics/t"
    assert paths.delete_topic("t") == "/admin/delete_topics/t"
    parents = {path.rpartition("/")[0] for path in paths.PERSISTENT_PATHS} - {""}
    assert parents <= set(paths.PERSISTENT_PATHS)
    for path in paths.PERSISTENT_PATHS:
        parent = path.rpartition("/")[0]
        assert not parent or paths.PERSISTENT_PATHS.index(parent) < paths.PERSISTENT_PATHS.index(path)
