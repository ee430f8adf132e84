"""What was appended to a topic's partitions on this broker, and read from them."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class TopicTraffic:
    """Counts since this broker has replicas of the topic; they stay while single replicas come and go."""

    replicas: int = 0
    """Replicas of the topic on this broker."""
    messages_in: int = 0
    """Records that were appended while this broker led."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Bytes of batches in responses to fetches."""
    produced: int = 0
    """Batches of Produce requests for partitions that this broker led."""
    refused_produces: int = 0
    """Those of them that were not appended."""
    fetched: int = 0
    """Partitions in responses to fetches."""
    refused_fetches: int = 0
    """Those of them that had an error."""
    produce_conversions: int = 0
    """Messages of old producers that were appended as records."""
    fetch_conversions: int = 0
    """Records that were sent to old consumers as messages."""
