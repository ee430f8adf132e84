"""Which topics rows may be written to, and which one may hold the sink's decisions. Pure."""

from typing import Final

from oncelog.protocol.internal.topics import GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME
from oncelog.protocol.topic_name import CLUSTER_METADATA_TOPIC_NAME, MAX_LENGTH, why_invalid

STATE_TOPIC: Final = "__spark_sink_state"
"""The topic to which sinks write their decisions, unless ``stateTopic`` names another one."""
_INTERNAL: Final = frozenset(
    {GROUP_METADATA_TOPIC_NAME, TRANSACTION_STATE_TOPIC_NAME, "__share_group_state", CLUSTER_METADATA_TOPIC_NAME}
)
_SHOWN: Final = 60


def topic_problem(name: str) -> str:
    """Return why neither rows nor decisions can be written to a topic; empty if they can."""
    if why_invalid(name) is not None:
        return f"no topic can have this name: one has 1 to {MAX_LENGTH} letters, digits, dots, underscores and dashes"
    return "it is an internal topic, which brokers alone write to" if name in _INTERNAL else ""


def target_problem(name: str, state_topic: str) -> str:
    """Return why rows cannot be written to a topic; empty if they can."""
    if name in (state_topic, STATE_TOPIC):
        return "it is a state topic (stateTopic), where sinks write their decisions, and nothing else may be written"
    return topic_problem(name)


def shown(name: str) -> str:
    """Return a name, quoted and shortened, for a message."""
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
