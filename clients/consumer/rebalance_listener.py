"""How an application hears that its partitions change."""

from collections.abc import Collection

from oncelog.protocol.topic_partition import TopicPartition


class RebalanceListener:
    """Override what matters. Everything is called inside ``poll`` (or ``close``, ``unsubscribe``), which waits for it.

    The rules are those of Kafka's ``ConsumerRebalanceListener``; an exception comes out of ``poll`` when the rebalance
    is complete. A method that does not return within ``max_poll_interval_ms`` costs the membership. If ``poll`` is
    cancelled while a method runs, the next ``poll`` calls it again.
    """

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Handle the revocation of partitions. They are still assigned: their offsets can be committed."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Handle new partitions. A seek applies before the first of their records is returned."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Handle the loss of partitions that have other owners already. Their offsets cannot be committed."""
        await self.on_partitions_revoked(partitions)
