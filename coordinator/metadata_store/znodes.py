"""What the znodes hold: the JSON of Apache Kafka 3.x in ZooKeeper mode, as values.

Each kind has an ``encode_…`` and a ``decode_…``. Written versions are those of Kafka 3.9 (topics 3, brokers 5,
partition states 1, configurations 1, changes 2); readers take what older ones wrote as far as 3.9 does. A znode that
cannot be decoded raises ``MalformedZnode``: another tool wrote it, and guessing would lose data. So does one whose
values have no room in the control requests that carry them, or contradict each other.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from oncelog.protocol.schema import ZERO_UUID


class MalformedZnode(ValueError):
    """The data is not what a znode of this kind holds."""


class SecurityProtocol(IntEnum):
    """How bytes travel on a listener, by Kafka's ids."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class RegisteredEndpoint(NamedTuple):
    """A listener as a broker advertises it."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """``/brokers/ids/N``: a live broker."""

    broker_id: int
    endpoints: tuple[RegisteredEndpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Supported features, as (lowest version, highest version)."""
    intact_since: int | None = None
    """The first broker epoch since which its logs have lost nothing; None: they may have, before this registration."""
    intact_until: int | None = None
    """The last broker epoch, before this registration, that its data directory has seen."""
    intact_before: tuple[tuple[int, int], ...] = ()
    """First and last broker epochs between which its logs had everything, before other directories were registered."""
    min_insync_replicas: int | None = None
    """What it was started with, for topics that do not say; None: it did not say (Apache Kafka, earlier releases)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The replicas of one partition, the preferred leader first; more than one list while it is being moved."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """``/brokers/topics/T``: a topic's id and where its partitions lie."""

    topic_id: bytes
    partitions: Mapping[int, ReplicaAssignment]


class LeaderRecoveryState(IntEnum):
    """Whether a leader was elected cleanly, or still must recover from an unclean election."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """``/brokers/topics/T/partitions/P/state``: the leader, its epoch, and the in-sync replicas."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    elr: tuple[int, ...] = ()
    """The eligible leader replicas (KIP-966): not in sync, and with all that has been acknowledged."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """By member of the ISR and the ELR, the broker epoch in which it was last known to have all that it should."""
    judged_at: int | None = None
    """For members without an epoch: the store's transaction that wrote the last state in which no member had one."""
    last_leader: int | None = None
    """The last leader, while there is none."""
    last_known_elr: tuple[int, ...] = ()
    """Former members of ISR and ELR that may lack acknowledged records, and may have more of them than the others."""


class ProducerIdBlock(NamedTuple):
    """``/latest_producer_id_block``: the ids that were reserved last, both ends included."""

    broker_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatures:
    """``/feature``: the cluster's finalized feature levels; their epoch is the znode's version."""

    levels: Mapping[str, int] = field(default_factory=dict)


NO_JMX_PORT: Final = -1

_INT16: Final = range(-(1 << 15), 1 << 15)
_INT32: Final = range(-(1 << 31), 1 << 31)
_BROKER_IDS: Final = range(1 << 31)
_PORTS: Final = range(1 << 16)
_EPOCHS: Final = range(1 << 63)
_MINIMUMS: Final = range(1, 1 << 31)


def to_json(content: Mapping[str, Any]) -> bytes:
    """Return what Kafka writes: without spaces, in UTF-8."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes) -> dict[str, Any]:
    """Return the object. Raises ``MalformedZnode``."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedZnode(f"not JSON: {data[:200]!r}") from error
    if not isinstance(content, dict):
        raise MalformedZnode(f"not a JSON object: {data[:200]!r}")
    return content


def encode_uuid(uuid: bytes) -> str:
    """Return Kafka's text form of a UUID: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, TypeError, ValueError) as error:
        raise MalformedZnode(f"not a UUID: {text!r}") from error
    if len(uuid) != len(ZERO_UUID):
        raise MalformedZnode(f"not a UUID: {text!r}")
    return uuid


def encode_broker(registration: BrokerRegistration, now_ms: int) -> bytes:
    plaintext = [e for e in registration.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT]
    content: dict[str, Any] = {
        "version": 5,
        # Clients older than the endpoints find the first plaintext listener here.
        "host": plaintext[0].host if plaintext else None,
        "port": plaintext[0].port if plaintext else -1,
        "jmx_port": NO_JMX_PORT,
        "timestamp": str(now_ms),
        "endpoints": [_connection_string(endpoint) for endpoint in registration.endpoints],
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    if registration.intact_since is not None and registration.intact_until is not None:
        content["intact_since"] = registration.intact_since
        content["intact_until"] = registration.intact_until
    if registration.intact_before:
        content["intact_before"] = registration.intact_before
    if registration.min_insync_replicas is not None:
        content["min_insync_replicas"] = registration.min_insync_replicas
    content["listener_security_protocol_map"] = {e.listener: e.security_protocol.name for e in registration.endpoints}
    content["features"] = {
        name: {"min_version": lowest, "max_version": highest}
        for name, (lowest, highest) in registration.features.items()
    }
    return to_json(content)


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    content = from_json(data)
    try:
        protocols = content.get("listener_security_protocol_map", {})
        endpoints = tuple(_parse_connection_string(text, protocols) for text in content["endpoints"])
        features = {
            name: (_checked(versions.get("min_version", 0), _INT16), _checked(versions["max_version"], _INT16))
            for name, versions in content.get("features", {}).items()
        }
        rack = content.get("rack")
        if not isinstance(rack, str | None):
            raise TypeError("a rack is a string")
        intact_since = _optional(content.get("intact_since"), _EPOCHS)
        intact_until = _optional(content.get("intact_until"), _EPOCHS)
        intact_before = tuple(
            (_checked(first, _EPOCHS), _checked(last, _EPOCHS)) for first, last in content.get("intact_before", ())
        )
        min_insync_replicas = _optional(content.get("min_insync_replicas"), _MINIMUMS)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedZnode(f"not a broker registration: {data[:500]!r}") from error
    return BrokerRegistration(
        broker_id=broker_id,
        endpoints=endpoints,
        rack=rack,
        features=features,
        intact_since=intact_since,
        intact_until=intact_until,
        intact_before=intact_before,
        min_insync_replicas=min_insync_replicas,
    )


def encode_last_registration(session_id: int) -> bytes:
    return to_json({"version": 1, "session": f"{session_id:x}"})


def decode_last_registration(data: bytes) -> int:
    """Return the session in which a broker was registered last. The znode outlives it, and is not one of Kafka's."""
    try:
        return int(from_json(data)["session"], 16)
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedZnode(f"not the session of a registration: {data[:500]!r}") from error


def _connection_string(endpoint: RegisteredEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _parse_connection_string(text: str, protocols: Mapping[str, str]) -> RegisteredEndpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    protocol = SecurityProtocol[protocols.get(listener, listener)]
    number = _checked(int(port), _PORTS)
    return RegisteredEndpoint(listener=listener, host=host.strip("[]"), port=number, security_protocol=protocol)


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return to_json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """Return the id of the broker that is controller."""
    return _integer(from_json(data), "brokerid")


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise MalformedZnode(f"not a controller epoch: {data[:200]!r}") from error


def encode_topic(assignment: TopicAssignment) -> bytes:
    partitions = sorted(assignment.partitions.items())
    content: dict[str, Any] = {
        "version": 3,
        "partitions": {str(index): list(partition.replicas) for index, partition in partitions},
        "adding_replicas": {str(index): list(p.adding) for index, p in partitions if p.adding},
        "removing_replicas": {str(index): list(p.removing) for index, p in partitions if p.removing},
    }
    if assignment.topic_id != ZERO_UUID:
        content["topic_id"] = encode_uuid(assignment.topic_id)
    return to_json(content)


def decode_topic(data: bytes) -> TopicAssignment:
    content = from_json(data)
    try:
        adding, removing = content.get("adding_replicas", {}), content.get("removing_replicas", {})
        partitions = {
            int(index): ReplicaAssignment(
                replicas=_broker_ids(replicas),
                adding=_broker_ids(adding.get(index, [])),
                removing=_broker_ids(removing.get(index, [])),
            )
            for index, replicas in content["partitions"].items()
        }
        if sorted(partitions) != list(range(len(partitions))) or not all(p.replicas for p in partitions.values()):
            raise ValueError("partitions are numbered from 0, and each has replicas")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedZnode(f"not a topic: {data[:500]!r}") from error
    topic_id = content.get("topic_id")
    return TopicAssignment(
        topic_id=ZERO_UUID if topic_id is None else decode_uuid(topic_id), partitions=dict(sorted(partitions.items()))
    )


def encode_partition_state(state: PartitionState) -> bytes:
    content: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.leader_recovery_state is not LeaderRecoveryState.RECOVERED:
        content["leader_recovery_state"] = int(state.leader_recovery_state)
    # Apache Kafka and earlier releases read by key, and skip these.
    if state.elr:
        content["elr"] = list(state.elr)
    if state.epochs:
        content["epochs"] = {str(broker_id): epoch for broker_id, epoch in sorted(state.epochs.items())}
    if state.judged_at is not None:
        content["judged_at"] = state.judged_at
    if state.last_leader is not None:
        content["last_leader"] = state.last_leader
    if state.last_known_elr:
        content["last_known_elr"] = list(state.last_known_elr)
    return to_json(content)


def decode_partition_state(data: bytes) -> PartitionState:
    content = from_json(data)
    try:
        return PartitionState(
            leader=_checked(content["leader"], _INT32),
            leader_epoch=_checked(content["leader_epoch"], _INT32),
            isr=_broker_ids(content["isr"]),
            controller_epoch=_checked(content["controller_epoch"], _INT32),
            leader_recovery_state=LeaderRecoveryState(content.get("leader_recovery_state", 0)),
            elr=_broker_ids(content.get("elr", [])),
            epochs={
                _checked(int(broker_id), _BROKER_IDS): _checked(epoch, _EPOCHS)
                for broker_id, epoch in content.get("epochs", {}).items()
            },
            judged_at=_optional(content.get("judged_at"), _EPOCHS),
            last_leader=_optional(content.get("last_leader"), _BROKER_IDS),
            last_known_elr=_broker_ids(content.get("last_known_elr", [])),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedZnode(f"not a partition state: {data[:500]!r}") from error


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return to_json({"version": 1, "config": dict(overrides)})


def decode_config(data: bytes) -> dict[str, str]:
    """Return the overrides of an entity; none if the znode is empty."""
    if not data:
        return {}
    overrides = from_json(data).get("config", {})
    if not isinstance(overrides, dict) or any(isinstance(value, dict | list) for value in overrides.values()):
        raise MalformedZnode(f"not a configuration: {data[:500]!r}")
    return {str(key): str(value) for key, value in overrides.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Encode the change of an entity: "topics/T", "brokers/N" or "brokers/<default>"."""
    return to_json({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Return the path of the changed entity, below ``/config``."""
    content = from_json(data)
    if "entity_path" in content:
        return str(content["entity_path"])
    try:
        return f"{content['entity_type']}/{content['entity_name']}"
    except KeyError as error:
        raise MalformedZnode(f"not a configuration change: {data[:500]!r}") from error


_LOG_DIR_FAILURE: Final = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    """Say that the controller should ask a broker how its data directory is."""
    return to_json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """Return the broker whose log directory has changed."""
    return _integer(from_json(data), "broker")


def encode_cluster_id(cluster_id: str) -> bytes:
    return to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    try:
        return str(from_json(data)["id"])
    except KeyError as error:
        raise MalformedZnode(f"not a cluster id: {data[:200]!r}") from error


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return to_json(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    content = from_json(data)
    return ProducerIdBlock(
        broker_id=_integer(content, "broker"),
        first=_integer(content, "block_start"),
        last=_integer(content, "block_end"),
    )


def encode_features(features: FinalizedFeatures) -> bytes:
    levels = {name: {"max_version_level": level} for name, level in features.levels.items()}
    return to_json({"version": 2, "status": 1, "features": levels})


def decode_features(data: bytes) -> FinalizedFeatures:
    """Return the finalized levels; none while feature versioning is disabled (status 0)."""
    content = from_json(data)
    try:
        enabled = content["status"] == 1
        levels = {name: int(level["max_version_level"]) for name, level in content["features"].items()}
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MalformedZnode(f"not finalized features: {data[:500]!r}") from error
    return FinalizedFeatures(levels=levels if enabled else {})


def _checked(value: object, allowed: range) -> int:
    """Return a number of a JSON document. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    if value not in allowed:
        raise ValueError(f"{value} is out of bounds")
    return value


def _optional(value: object, allowed: range) -> int | None:
    """Return a number that may be absent. Raises ``TypeError`` or ``ValueError``."""
    return None if value is None else _checked(value, allowed)


def _broker_ids(values: object) -> tuple[int, ...]:
    """Return the members of a list of different brokers. Raises ``TypeError`` or ``ValueError``."""
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    broker_ids = tuple(_checked(value, _BROKER_IDS) for value in values)
    if len(set(broker_ids)) < len(broker_ids):
        raise ValueError(f"{values} names a broker twice")
    return broker_ids


def _integer(content: Mapping[str, Any], key: str) -> int:
    try:
        return int(content[key])
    except (KeyError, ValueError, TypeError) as error:
        raise MalformedZnode(f"no number called {key!r} in {content}") from error
