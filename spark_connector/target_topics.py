"""Which topics rows may go to, and which one may have the sink's decisions. Pure."""

from typing import Final

from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_name import CLUSTER_METADATA_TOPIC_NAME, MAX_LENGTH, why_invalid

STATE_TOPIC: Final = "__spark_sink_state"
"""Where sinks write their decisions, unless ``stateTopic`` names another one."""
_INTERNAL: Final = frozenset(
    {GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME, "__share_group_state", CLUSTER_METADATA_TOPIC_NAME}
)
_SHOWN: Final = 60


def why_no_topic_of_ours(name: str) -> str:
    """The reason why neither rows nor decisions can be written to a topic; empty if they can."""
    if why_invalid(name) is not None:
        return f"no topic can have this name: one has 1 to {MAX_LENGTH} letters, digits, dots, underscores and dashes"
    return "it is an internal topic, which brokers alone write to" if name in _INTERNAL else ""


def why_no_target(name: str, state_topic: str) -> str:
    """The reason why rows cannot go to a topic; empty if they can."""
    if name in (state_topic, STATE_TOPIC):
        return "it is a state topic (stateTopic), where sinks write their decisions, and nothing else may be written"
    return why_no_topic_of_ours(name)


def shown(name: str) -> str:
    """A name of any length, for a message."""
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
