"""ElectLeaders (API key 43): versions 0-2, flexible from 2.

Elects leaders of partitions now: the preferred replica, or any live one where none is in sync (KIP-460).

1: the type of election, which was "preferred" before, and an error for the whole request.
"""

from oncelog.protocol.schema import Message, array, array_of, int8, int16, int32, string


class ElectLeadersTopic(Message):
    topic: str = string("0+", default="")
    partitions: list[int] = array_of(int32, "0+", default_factory=list)


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+", default=0)
    topic_partitions: list[ElectLeadersTopic] | None = array(
        ElectLeadersTopic, "0+", default_factory=list, nullable="0+"
    )
    timeout_ms: int = int32("0+", default=60_000)


class PartitionElectionResult(Message):
    partition_id: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", default=None, nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = string("0+", default="")
    partition_result: list[PartitionElectionResult] = array(PartitionElectionResult, "0+", default_factory=list)


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+", default_factory=list)
