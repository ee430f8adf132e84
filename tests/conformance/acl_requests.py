"""The requests of ``acl_cells.txt``, as the fields that are not the defaults."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from oncelog.protocol.schema import ZERO_UUID
from tests.unit.broker.batches import batch

if TYPE_CHECKING:
    from tests.conformance.acl_stage import AclStage

Fields = dict[str, Any]
MakesFields = Callable[["AclStage"], Awaitable[Fields]]
T, U, G, X, OPEN, DEL, NEW = "cells-t", "cells-u", "cells-g", "cells-x", "cells-open", "cells-del", "cells-new"
NOWHERE, AUTO, METRICS = "cells-nowhere", "cells-auto", "cells-m"
UNKNOWN_ID = (77).to_bytes(16, "big")
TOPIC, CLUSTER, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 4, 8, 16, 32

REQUESTS: dict[str, MakesFields] = {}


def request(*names: str) -> Callable[[MakesFields], MakesFields]:
    """Name what a function makes the fields of."""

    def decorate(makes_fields: MakesFields) -> MakesFields:
        REQUESTS.update(dict.fromkeys(names, makes_fields))
        return makes_fields

    return decorate


def fixed(name: str, **fields: Any) -> None:
    """Add a request that depends on nothing."""

    @request(name)
    async def makes_fields(stage: "AclStage") -> Fields:
        return fields


# Produce


def produce(*topics: Mapping[str, Any], transactional_id: str | None = None, records: Any = None) -> Fields:
    data = [{"index": 0, "records": batch() if records is None else records}]
    topic_data = [{**topic, "partition_data": data} for topic in topics]
    return {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 5_000, "topic_data": topic_data}


@request("produce-id", "precedence-produce")
async def produce_by_id(stage: "AclStage") -> Fields:
    return produce({"topic_id": await stage.topic_id(T)})


@request("produce-name")
async def produce_by_name(stage: "AclStage") -> Fields:
    return produce({"name": T})


@request("produce-two-topics")
async def produce_to_two_topics(stage: "AclStage") -> Fields:
    return produce({"name": T}, {"name": U})


@request("produce-unknown-name")
async def produce_to_an_unknown_topic(stage: "AclStage") -> Fields:
    return produce({"name": NOWHERE})


@request("produce-idempotent")
async def produce_idempotently(stage: "AclStage") -> Fields:
    producer_id, epoch = await stage.producer(None)
    return produce({"name": T}, records=batch(producer_id=producer_id, epoch=epoch, sequence=0))


async def transactional_batch(stage: "AclStage") -> Any:
    producer_id, epoch = await stage.producer(X)
    await stage.add_partition(X, (producer_id, epoch))
    return batch(producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)


@request("produce-txn")
async def produce_transactionally(stage: "AclStage") -> Fields:
    return {**produce({"name": T}, transactional_id=X, records=await transactional_batch(stage)), "acks": -1}


@request("produce-txn-null-id")
async def produce_transactionally_without_id(stage: "AclStage") -> Fields:
    return {**produce({"name": T}, records=await transactional_batch(stage)), "acks": -1}


@request("produce-plain-with-id")
async def produce_plainly_with_id(stage: "AclStage") -> Fields:
    return produce({"name": T}, transactional_id=X)


# Fetch, offsets and metadata


def fetch(topic: Mapping[str, Any], **fields: Any) -> Fields:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    topics = [{**topic, "partitions": [partition]}]
    return {"max_bytes": 1_000, "session_epoch": -1, "topics": topics, **fields}


@request("fetch-id")
async def fetch_by_id(stage: "AclStage") -> Fields:
    return fetch({"topic_id": await stage.topic_id(T)})


@request("fetch-follower")
async def fetch_as_follower(stage: "AclStage") -> Fields:
    return fetch({"topic_id": await stage.topic_id(T)}, replica_state={"replica_id": 1, "replica_epoch": -1})


fixed("fetch-name", **fetch({"topic": T}))
fixed("fetch-unknown-id", **fetch({"topic_id": UNKNOWN_ID}))
fixed("list-offsets", replica_id=-1, topics=[{"name": T, "partitions": [{"partition_index": 0, "timestamp": -1}]}])


def metadata(*topics: Mapping[str, Any], **fields: Any) -> Fields:
    named = [{"topic_id": ZERO_UUID, "name": None, **topic} for topic in topics]
    given = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    return {"topics": named, **given, **fields}


@request("metadata-id")
async def metadata_by_id(stage: "AclStage") -> Fields:
    return metadata({"topic_id": await stage.topic_id(T)})


@request("metadata-auto-create-by-topic", "metadata-auto-create-by-cluster")
async def metadata_that_creates(stage: "AclStage") -> Fields:
    await stage.delete_topic(AUTO)
    return metadata({"name": AUTO}, allow_auto_topic_creation=True)


fixed("metadata-name", **metadata({"name": T}))
fixed("precedence-describe", **metadata({"name": T}))
fixed("metadata-unknown-name", **metadata({"name": NOWHERE}))
fixed("metadata-all", **metadata(topics=None))
fixed(
    "metadata-cluster-ops-v10",
    **metadata(include_cluster_authorized_operations=True, include_topic_authorized_operations=False),
)
fixed("describe-topic-partitions", topics=[{"name": T}], response_partition_limit=100)
fixed("describe-topic-partitions-all", topics=[], response_partition_limit=100)
fixed("describe-cluster", include_cluster_authorized_operations=True, endpoint_type=1)
EPOCH = {"topic": T, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
fixed("epoch-end-offsets", replica_id=-1, topics=[EPOCH])
fixed("epoch-end-offsets-by-cluster", replica_id=-1, topics=[EPOCH])

# Groups

COMMITTED = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}


def commit(*topics: Mapping[str, Any]) -> Fields:
    committed = [{**topic, "partitions": [COMMITTED]} for topic in topics]
    return {"group_id": G, "generation_id_or_member_epoch": -1, "member_id": "", "topics": committed}


@request("offset-commit-id")
async def commit_by_id(stage: "AclStage") -> Fields:
    return commit({"topic_id": await stage.topic_id(T)})


def committed(topics: Any) -> Fields:
    return {"groups": [{"group_id": G, "member_id": None, "member_epoch": -1, "topics": topics}]}


@request("offset-fetch-id")
async def committed_by_id(stage: "AclStage") -> Fields:
    return committed([{"topic_id": await stage.topic_id(T), "partition_indexes": [0]}])


fixed("offset-commit-name", **commit({"name": T}))
fixed("offset-fetch-name", **committed([{"name": T, "partition_indexes": [0]}]))
fixed("offset-fetch-all", **committed(None))
fixed("find-coordinator-group", key_type=0, coordinator_keys=[G])
fixed("find-coordinator-txn", key_type=1, coordinator_keys=[X])
fixed("find-coordinator-share", key_type=2, coordinator_keys=["cells-sg:AAAAAAAAAAAAAAAAAAAATQ:0"])
fixed("find-coordinator-group-v3", key_type=0, key=G)
fixed("find-coordinator-txn-v3", key_type=1, key=X)
fixed(
    "join-group",
    group_id=G,
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[{"name": "range", "metadata": b""}],
)
MEMBER = {"group_id": G, "generation_id": 1, "member_id": "no-member"}
fixed("heartbeat", **MEMBER)
fixed("sync-group", **MEMBER, protocol_type="consumer", protocol_name="range")
fixed("leave-group", group_id=G, members=[{"member_id": "no-member"}])
fixed("describe-groups", groups=[G], include_authorized_operations=True)
fixed("list-groups-by-group")
fixed("list-groups-by-cluster")
fixed("delete-groups", groups_names=["cells-gone"])
fixed("offset-delete", group_id=G, topics=[{"name": T, "partitions": [{"partition_index": 0}]}])

# Topics


def created(name: str) -> Fields:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [topic], "timeout_ms": 5_000, "validate_only": True}


fixed("create-topics-by-topic", **created(NEW))
fixed("create-topics-by-cluster", **created(NEW))
fixed("create-topics-existing", **created(T))
fixed("create-topics-bad-name", **created("cells-!"))


@request("delete-topics-name", "delete-topics-by-cluster")
async def delete_by_name(stage: "AclStage") -> Fields:
    await stage.create_topic(DEL)
    return {"topics": [{"name": DEL, "topic_id": ZERO_UUID}], "timeout_ms": 5_000}


@request("delete-topics-id", "delete-topics-id-describable")
async def delete_by_id(stage: "AclStage") -> Fields:
    await stage.create_topic(DEL)
    return {"topics": [{"name": None, "topic_id": await stage.topic_id(DEL)}], "timeout_ms": 5_000}


fixed("delete-topics-unknown", topics=[{"name": NOWHERE, "topic_id": ZERO_UUID}], timeout_ms=5_000)
fixed("delete-records", topics=[{"name": T, "partitions": [{"partition_index": 0, "offset": 0}]}], timeout_ms=3_000)
for case, topic in (("create-partitions", T), ("create-partitions-unknown", NOWHERE)):
    fixed(case, topics=[{"name": topic, "count": 2, "assignments": None}], timeout_ms=3_000, validate_only=True)
fixed("describe-producers", topics=[{"name": T, "partition_indexes": [0]}])

# Transactions


def identified(transactional_id: str | None) -> Fields:
    return {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}


fixed("init-pid-txn", **identified(X))
for case in ("init-pid-idempotent", "init-pid-idempotent-by-topic", "precedence-any-topic"):
    fixed(case, **identified(None))


def in_transaction(producer: tuple[int, int]) -> Fields:
    return {"transactional_id": X, "producer_id": producer[0], "producer_epoch": producer[1]}


@request("add-partitions-v3")
async def add_partitions(stage: "AclStage") -> Fields:
    topics = [{"name": name, "partitions": [0]} for name in (T, U)]
    fields = {f"v3_and_below_{key}": value for key, value in in_transaction(await stage.producer(X)).items()}
    return {**fields, "v3_and_below_topics": topics}


@request("add-partitions-v5")
async def add_partitions_as_broker(stage: "AclStage") -> Fields:
    topics = [{"name": T, "partitions": [0]}]
    return {"transactions": [{**in_transaction(await stage.producer(X)), "verify_only": False, "topics": topics}]}


@request("add-offsets-to-txn")
async def add_offsets(stage: "AclStage") -> Fields:
    return {**in_transaction(await stage.producer(X)), "group_id": G}


@request("end-txn")
async def abort(stage: "AclStage") -> Fields:
    producer = await stage.producer(X)
    await stage.add_partition(X, producer)
    return {**in_transaction(producer), "committed": False}


@request("txn-offset-commit")
async def commit_in_transaction(stage: "AclStage") -> Fields:
    producer = await stage.producer(X)
    await stage.set_up("AddOffsetsToTxn", 3, **in_transaction(producer), group_id=G)
    partition = {**COMMITTED, "committed_offset": 1}
    topics = [{"name": T, "partitions": [partition]}]
    return {**in_transaction(producer), "group_id": G, "generation_id": -1, "member_id": "", "topics": topics}


MARKER = {
    "producer_id": 999_999,
    "producer_epoch": 0,
    "transaction_result": False,
    "topics": [{"name": T, "partition_indexes": [0]}],
    "coordinator_epoch": 0,
}
fixed("write-txn-markers-alter", markers=[MARKER])
fixed("write-txn-markers-cluster-action", markers=[MARKER])
fixed("describe-transactions", transactional_ids=[OPEN])
fixed("list-transactions")

# Configurations and the cluster

SETTINGS = {
    "topic": (TOPIC, T, "retention.ms", "1000"),
    "topic-unknown": (TOPIC, NOWHERE, "retention.ms", "1000"),
    "broker": (BROKER, "1", "log.cleaner.threads", "1"),
    "broker-default": (BROKER, "", "log.cleaner.threads", "1"),
    "broker-logger": (LOGGER, "1", "kafka.zzz", "INFO"),
    "group": (GROUP, G, "consumer.session.timeout.ms", "45000"),
    "client-metrics": (CLIENT_METRICS, METRICS, "interval.ms", "1000"),
}
for what, (kind, name, key, value) in SETTINGS.items():
    resource = {"resource_type": kind, "resource_name": name}
    setting = {"name": key, "value": value}
    altered = {"resources": [{**resource, "configs": [setting]}], "validate_only": True}
    fixed(f"describe-configs-{what}", resources=[{**resource, "configuration_keys": ["x"]}])
    fixed(f"incremental-alter-configs-{what}", **altered)
    fixed(f"alter-configs-{what}", **altered)
for case in ("describe-configs-group", "precedence-describe-configs"):
    kind, name = (GROUP, G) if "group" in case else (TOPIC, T)
    fixed(case, resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": ["x"]}])
fixed("list-config-resources")
for case in ("describe-log-dirs", "describe-log-dirs-v2"):
    fixed(case, topics=[{"topic": T, "partitions": [0]}])
fixed("elect-leaders", election_type=0, topic_partitions=[{"topic": T, "partitions": [0]}], timeout_ms=1_000)
fixed(
    "alter-reassignments",
    timeout_ms=1_000,
    topics=[{"name": T, "partitions": [{"partition_index": 0, "replicas": None}]}],
)
fixed("list-reassignments", timeout_ms=1_000, topics=None)
fixed(
    "update-features",
    timeout_ms=1_000,
    feature_updates=[{"feature": "nothing", "max_version_level": 1, "upgrade_type": 1}],
    validate_only=True,
)

# Access control lists

FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": "cells-none",
    "pattern_type_filter": 3,
    "principal_filter": "User:zed",
    "host_filter": None,
    "operation": 3,
    "permission_type": 3,
}
CREATION = {
    "resource_type": CLUSTER,
    "resource_name": "wrong",
    "resource_pattern_type": 3,
    "principal": "User:zed",
    "host": "*",
    "operation": 8,
    "permission_type": 3,
}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "zed"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
}
fixed("alter-client-quotas", entries=[QUOTA], validate_only=True)
fixed("describe-client-quotas")
fixed("describe-acls", **FILTER)
fixed("delete-acls", filters=[FILTER])
fixed("create-acls", creations=[CREATION])

# Users and delegation tokens

fixed("describe-scram", users=[{"name": "no-user"}])
fixed("alter-scram", deletions=[{"name": "no-user", "mechanism": 1}])
fixed("create-token-self", max_lifetime_ms=60_000)
fixed("create-token-other", owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=60_000)
fixed("describe-tokens-by-token", owners=None)
fixed("describe-tokens-by-user", owners=[{"principal_type": "User", "principal_name": "bob"}])


@request("renew-token-not-owner")
async def renew(stage: "AclStage") -> Fields:
    return {"hmac": stage.token_hmac, "renew_period_ms": 1_000}


@request("expire-token-not-owner")
async def expire(stage: "AclStage") -> Fields:
    return {"hmac": stage.token_hmac, "expiry_time_period_ms": 1_000_000}
