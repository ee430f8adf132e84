"""What a controller's burst of UpdateMetadata costs: every partition, to every broker, built and encoded.

``python -m tests.benchmarks.metadata_broadcast --partitions 10000 --brokers 100``
"""

import argparse
import time

from oncelog.coordinator.controller.cluster_state import ClusterState, LiveBroker, TopicState, VersionedState
from oncelog.coordinator.controller.control_requests import ControlRequests
from oncelog.coordinator.metadata_store.znodes import (
    BrokerRegistration,
    PartitionState,
    RegisteredEndpoint,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog.protocol.framing import encode_request
from oncelog.protocol.messages.update_metadata import UpdateMetadataRequest

TOPIC_PARTITIONS = 100
REPLICAS = 3


def cluster(partitions: int, brokers: int) -> ClusterState:
    state = ClusterState()
    for broker_id in range(brokers):
        endpoint = RegisteredEndpoint(listener="PLAINTEXT", host=f"broker-{broker_id}.example.org", port=9092)
        registration = BrokerRegistration(broker_id=broker_id, endpoints=(endpoint,), rack=None, features={})
        state.brokers[broker_id] = LiveBroker(registration=registration, epoch=broker_id)
    for number in range(partitions // TOPIC_PARTITIONS):
        replicas = {
            index: tuple((number + index + n) % brokers for n in range(REPLICAS)) for index in range(TOPIC_PARTITIONS)
        }
        assignment = TopicAssignment(
            topic_id=number.to_bytes(16, "big"),
            partitions={index: ReplicaAssignment(replicas=each) for index, each in replicas.items()},
        )
        states = {
            index: VersionedState(
                state=PartitionState(leader=each[0], leader_epoch=0, isr=each, controller_epoch=1), version=0, mzxid=1
            )
            for index, each in replicas.items()
        }
        state.put_topic(f"topic-{number}", TopicState(assignment=assignment, version=0, states=states))
    return state


def burst(state: ClusterState) -> tuple[float, int]:
    """Return the processor seconds and the bytes of one."""
    began = time.process_time()
    requests = ControlRequests(state, 1, 1, "PLAINTEXT")
    requests.add_update_metadata(state.partitions(), state.brokers)
    size = 0
    for number, (_, request) in enumerate(requests.build()):
        size += sum(map(len, encode_request(number, "broker-1", request, UpdateMetadataRequest.versions.last)))
    return time.process_time() - began, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=100)
    options = parser.parse_args()
    state = cluster(options.partitions, options.brokers)
    times = sorted(burst(state) for _ in range(5))
    seconds, size = times[len(times) // 2]
    print(
        f"{options.partitions} partitions, {options.brokers} brokers: {seconds * 1000:.0f} ms of processor time "
        f"(median of 5) for {size / 1e6:.1f} MB of UpdateMetadata"
    )


if __name__ == "__main__":
    main()
