"""What a user can do about an error that a broker returns."""

from collections.abc import Mapping
from typing import Final

from oncelog.clients.cli.named_partitions import HAS_OTHERS
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import RETRIABLE, ErrorCode

_UNSETTLED: Final = "the cluster has not settled: try again, and see `oncelog health`"
_COLLISION: Final = (
    "the names of metrics have an underscore for each dot, so a.b and a_b would be one: choose a name that differs "
    "in more than that"
)
_MISSING_PARTITION: Final = "name one of these, or add some: `oncelog topic add-partitions TOPIC --num N`"
_UNSAFE_DOWNGRADE: Final = (
    "`oncelog health` says for which brokers partitions wait, and what would be lost; --unsafe lowers the level "
    "without them"
)
MARKED_FOR_DELETION: Final = "marked for deletion"
"""In what a controller says of a topic whose deletion has begun and not ended."""
_WILL_BE_DELETED: Final = "will be deleted"
_DELETION_WAITS: Final = (
    "the deletion is accepted and goes on by itself, and until it has ended the name is taken: start the brokers "
    "that it waits for: they have replicas of the topic"
)
_DISK_IS_FULL: Final = "the disk is full: once it has room again, the broker goes on by itself, so do not restart it"
_MEMBERS: Final = "stop the group's members first: `oncelog group describe GROUP` lists them"

_REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`oncelog topic list` shows what there is, `oncelog topic create` adds to it",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or pass --if-not-exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a name has at most 249 letters, digits, dots, underscores and dashes",
    ErrorCode.INVALID_REPLICATION_FACTOR: "pass --replication-factor with at most the number of brokers",
    ErrorCode.INVALID_PARTITIONS: "partitions can only be added: see `oncelog topic describe`",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "patterns are of RE2 syntax, with at most 2000 characters and 2048 compiled "
    "instructions: repeat less, and use no Unicode classes",
    ErrorCode.INVALID_CONFIG: "`oncelog config describe … --all` shows names, values and, with --docs, their meaning",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`oncelog topic describe --offsets` shows where partitions begin and end",
    ErrorCode.OFFSET_NOT_AVAILABLE: "its leader does not know the end of what is acknowledged: since its election, "
    "fewer replicas have been in sync than min.insync.replicas. Start the brokers of those that "
    "`oncelog topic describe` does not show in the ISR, or wait a moment if it shows all",
    ErrorCode.NON_EMPTY_GROUP: _MEMBERS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "controller_mutation_rate of this client is used up: try again later, or see "
    "`oncelog quota describe`",
    ErrorCode.UNKNOWN_MEMBER_ID: _MEMBERS,
    ErrorCode.ILLEGAL_GENERATION: _MEMBERS,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the group's members that subscribe to this topic first",
    ErrorCode.GROUP_ID_NOT_FOUND: "`oncelog group list` shows what there is",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`oncelog txn list` shows what there is",
    ErrorCode.INVALID_TXN_STATE: "`oncelog txn producers TOPIC` shows the transactions that partitions have open",
    ErrorCode.CONCURRENT_TRANSACTIONS: "its coordinator is at work on it: see `oncelog txn describe`, and try again",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has a newer epoch by now: see `oncelog txn producers TOPIC`",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "there is a newer marker by now: see `oncelog txn producers TOPIC`",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction that commits these offsets is open: see `oncelog txn list`",
    ErrorCode.INVALID_RECORD: "a batch with such a record is refused as a whole. A compacted topic takes only records "
    "with a key: pass --key or --key-separator",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes: `oncelog topic alter-config`",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas: see `oncelog health`",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas wants",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the internal topics may need more brokers than there are: "
    "see `oncelog health`, offsets.topic.replication.factor and transaction.state.log.replication.factor",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log: try again",
    ErrorCode.LEADER_NOT_AVAILABLE: "no replica can lead now: see `oncelog health`",
    ErrorCode.NETWORK_EXCEPTION: "the leader could not be reached from here at the address that it advertises: "
    "`oncelog doctor` shows which addresses this machine can use, and what to set instead",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client may not do that with this topic: `oncelog doctor` with "
    "--produce or --consume names the rights that it lacks, and who adds them",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client may not do that with this group: `oncelog doctor` with --group "
    "names the right that it lacks, and who adds it",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this client may not use this transactional id: `oncelog doctor` "
    "with --transactional-id names the right that it lacks, and who adds it",
    ErrorCode.SECURITY_DISABLED: "the broker lets every client do everything: authorizer.class.name changes that",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this client may not do that",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "brokers have delegation tokens if delegation.token.secret.key is set",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "--command-config FILE has to name a user and a password, or a "
    "certificate: tokens are for clients that have authenticated, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "a token for another owner needs "
    "`oncelog acl add PRINCIPAL create-tokens --user OWNER`",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "`oncelog token list` shows those that this client may see",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only the owner of the token and its renewers may do that",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "create another one: `oncelog token create`",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owner and renewers have to be of the type User, such as User:alice",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk of the data directory is full or fails: `oncelog health` names the "
    "directory, and the broker's output says more",
    ErrorCode.RESOURCE_NOT_FOUND: "`oncelog user list` shows what there is",
    ErrorCode.INVALID_UPDATE_VERSION: "`oncelog feature describe` shows which levels there are; "
    "`oncelog feature upgrade` only raises and `oncelog feature downgrade` only lowers them",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is of a version that cannot do this",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker's output says more",
}


def remedy(refused: Refusal) -> str | None:
    """Return what to do about a refusal; None if its message says all."""
    error, message = refused.error, refused.message or ""
    if MARKED_FOR_DELETION in message or (error is ErrorCode.REQUEST_TIMED_OUT and _WILL_BE_DELETED in message):
        return _DELETION_WAITS
    if error is ErrorCode.INVALID_TOPIC_EXCEPTION and "collide" in message:
        return _COLLISION
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and message.startswith(HAS_OTHERS):
        return _MISSING_PARTITION
    if error is ErrorCode.INVALID_UPDATE_VERSION and "unsafe downgrade." in message:
        return _UNSAFE_DOWNGRADE
    if error is ErrorCode.KAFKA_STORAGE_ERROR and "is full" in message:
        return _DISK_IS_FULL
    return _REMEDIES.get(error) or (_UNSETTLED if error in RETRIABLE else None)


NO_RESPONSE: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors that mean that no broker responded."""
