"""WriteTxnMarkers (API key 27): versions 0-2, flexible from 1.

The transaction coordinator has commit or abort markers written to the partitions of a transaction.

2: the transaction protocol's version for each marker (KIP-1228).

Tags from 10000 on are specific to Oncelog. Of a marker, 10000 is the offset of the record that decided the end, in the
transaction log. Of a topic, 10000 has the leader epochs of its partitions, in their order, and 10001 its id, as the
sender knows them: a topic that is created again has the same name, and its leader epochs begin again. Apache Kafka
skips all of them and sends none.
"""

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
    uuid,
)


class WritableTxnMarkerTopic(Message):
    name: str = string("0+", default="")
    partition_indexes: list[int] = array_of(int32, "0+", default_factory=list)
    leader_epochs: list[int] = array_of(int32, "1+", default_factory=list, tag=OWN_TAGS)
    topic_id: bytes = uuid("1+", default=ZERO_UUID, tag=OWN_TAGS + 1)


class WritableTxnMarker(Message):
    producer_id: int = int64("0+", default=0)
    producer_epoch: int = int16("0+", default=0)
    transaction_result: bool = boolean("0+", default=False)
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+", default_factory=list)
    coordinator_epoch: int = int32("0+", default=0)
    transaction_version: int = int8("2+", default=0)
    decision_offset: int = int64("1+", default=-1, tag=OWN_TAGS)


class WriteTxnMarkersRequest(Message, api_key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+", default_factory=list)


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)


class WritableTxnMarkerTopicResult(Message):
    name: str = string("0+", default="")
    partitions: list[WritableTxnMarkerPartitionResult] = array(
        WritableTxnMarkerPartitionResult, "0+", default_factory=list
    )


class WritableTxnMarkerResult(Message):
    producer_id: int = int64("0+", default=0)
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+", default_factory=list)


class WriteTxnMarkersResponse(Message, api_key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+", default_factory=list)
