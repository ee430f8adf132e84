"""What the driver takes for data loss."""

from oncelog.protocol.topic_partition import TopicPartition
from oncelog.spark_connector.reading.data_loss import data_loss, find_losses

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
X, Y, NONE = b"x" * 16, b"y" * 16, bytes(16)


def test_nothing_is_lost_while_all_is_as_it_was() -> None:
    assert not find_losses({A: 5, B: 5}, {"a": X}, {A: X, B: Y, C: Y}, {A: 5})


def test_topics_that_are_gone_or_others_and_logs_that_are_shorter() -> None:
    losses = find_losses({A: 5, B: 5, C: 5}, {"a": X, "b": X, "c": X}, {B: Y, C: X}, {B: 1, C: 4})
    assert losses.deleted == {A}
    assert losses.recreated == {"b"}
    assert losses.cut_back == {C}
    told = str(data_loss(losses))
    for part in ("created again: b", "do not exist any more: a-0", "ends before", "c-0", "failOnDataLoss=false"):
        assert part in told


def test_a_cluster_that_learns_or_loses_its_ids_loses_no_data() -> None:
    assert not find_losses({A: 5}, {}, {A: X}, {})
    assert not find_losses({A: 5}, {"a": X}, {A: NONE}, {})
