"""What the driver takes for data loss."""

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.data_loss import data_loss, find_losses

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
X, Y, NONE = b"x" * 16, b"y" * 16, bytes(16)


def test_unchanged_topics_have_no_losses() -> None:
    assert not find_losses({A: 5, B: 5}, {"a": X}, {A: X, B: Y, C: Y}, {A: 5})


def test_deleted_recreated_and_truncated_topics_are_losses() -> None:
    losses = find_losses({A: 5, B: 5, C: 5}, {"a": X, "b": X, "c": X}, {B: Y, C: X}, {B: 1, C: 4})
    assert losses.deleted == {A}
    assert losses.recreated == {"b"}
    assert losses.cut_back == {C}
    message = str(data_loss(losses))
    for part in ("created again: b", "do not exist any more: a-0", "ends before", "c-0", "failOnDataLoss=false"):
        assert part in message


def test_topic_ids_that_appear_or_vanish_are_no_losses() -> None:
    assert not find_losses({A: 5}, {}, {A: X}, {})
    assert not find_losses({A: 5}, {"a": X}, {A: NONE}, {})
