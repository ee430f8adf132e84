"""Internal topics that need more brokers than there are, from metadata and the settings of a broker."""

from oncelog.clients.cli.uncreatable_topics import about_uncreatable_topics
from oncelog.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

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
