"""The names of the topics in which a cluster keeps its own state.

Brokers create these topics, and only coordinators write to them.
"""

from typing import Final

GROUP_METADATA_TOPIC_NAME: Final = "__consumer_offsets"
"""Groups and their committed offsets."""
TRANSACTION_STATE_TOPIC_NAME: Final = "__transaction_state"
"""Transactional ids and the transactions under way."""
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME})
