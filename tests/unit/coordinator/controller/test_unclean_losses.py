"""What the controller logs of elections by which acknowledged records may be lost."""

from oncelog.coordinator.controller.unclean_losses import UncleanLoss, about_unclean_losses
from oncelog.protocol.topic_partition import TopicPartition


def test_elections_that_are_alike_are_one_line() -> None:
    losses = [UncleanLoss(2, (1, 3), (), TopicPartition("t", index)) for index in range(7)]
    losses.append(UncleanLoss(3, (1,), (2, 4), TopicPartition("u", 0)))
    assert about_unclean_losses(losses) == [
        "Broker 2 leads t-0, t-1, t-2, t-3, t-4 and 2 more now and may lack acknowledged records: no replica that "
        "certainly has them is there. In sync before: 1, 3; eligible: none",
        "Broker 3 leads u-0 now and may lack acknowledged records: no replica that certainly has them is there. In "
        "sync before: 1; eligible: 2, 4",
    ]
