"""Whether all rows of a batch went to the same topics, by their ids: a later topic may have the same name. Pure.

The rows of a deleted topic are gone, those of open transactions too. Rows that are sent to the next topic of that name
in the same batch would be visible there without the others.
"""

from collections.abc import Collection, Iterable, Mapping

from oncelog.spark_connector.sink.commit.sink_broker import TopicIds


def names_of(written: Iterable[TopicIds]) -> set[str]:
    """Return the names of the topics that a batch was written to."""
    return {name for topics in written for name, _ in topics}


def replaced_topics(written: Iterable[TopicIds], now: Mapping[str, bytes]) -> list[str]:
    """Return the topics that have had more than one id: for two tasks, or by now."""
    ids: dict[str, set[bytes]] = {}
    for topics in (*written, tuple(now.items())):
        for name, topic_id in topics:
            ids.setdefault(name, set()).add(topic_id)
    return sorted(name for name, known in ids.items() if len(known) > 1)


def replacement(names: Collection[str]) -> str:
    """Return a message for topics that were replaced."""
    return f"{', '.join(names)} was deleted and created again while rows were written to it"
