"""Internal topics that need more brokers than there are, from metadata and the settings of a broker."""

from oncelog.clients.cli.uncreatable_topics import about_uncreatable_topics
from oncelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OFFSETS = "offsets.topic.replication.factor"
TRANSACTIONS = "transaction.state.log.replication.factor"


def metadata(brokers: int, *topics: str) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node_id) for node_id in range(brokers)],
        topics=[MetadataResponseTopic(name=name) for name in topics],
    )


def test_internal_topics_that_need_more_brokers_are_named_with_their_settings() -> None:
    groups, transactions = about_uncreatable_topics(metadata(1), {OFFSETS: 3, TRANSACTIONS: 2})
    assert groups.startswith("__consumer_offsets cannot be created, so consumer groups cannot be used: ")
    assert f"{OFFSETS} is 3, and the cluster has 1 broker;" in groups
    assert f"{TRANSACTIONS} is 2" in transactions


def test_internal_topics_that_exist_or_fit_or_are_unknown_are_not_named() -> None:
    assert about_uncreatable_topics(metadata(3), {OFFSETS: 3, TRANSACTIONS: 3}) == ()
    assert about_uncreatable_topics(metadata(1, "__consumer_offsets"), {OFFSETS: 3}) == ()
    assert about_uncreatable_topics(metadata(1), {}) == ()


def test_brokers_that_are_away_are_to_be_started_before_a_setting_is_lowered() -> None:
    partition = MetadataResponsePartition(replica_nodes=[0, 1, 7, 5], isr_nodes=[0, 1])
    seen = metadata(2, "orders")
    seen.topics[0].partitions = [partition]
    (fitting,) = about_uncreatable_topics(seen, {OFFSETS: 3})
    assert fitting.endswith("and the cluster has 2 brokers; start brokers 5, 7")
    (greater,) = about_uncreatable_topics(seen, {OFFSETS: 5})
    assert greater.endswith("; start brokers 5, 7, and more brokers")
