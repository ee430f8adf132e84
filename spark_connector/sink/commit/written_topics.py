"""Whether all rows of a batch went to the same topics, by their ids: a name may be given to another one. Pure.

A topic that is deleted takes its rows with it, those of open transactions too. Rows that are sent to the next topic of
that name in the same batch would be seen there without the others.
"""

from collections.abc import Collection, Iterable, Mapping

from oncelog.spark_connector.sink.commit.sink_broker import TopicIds


def names_of(written: Iterable[TopicIds]) -> set[str]:
    """Of the topics that a batch was written to."""
    return {name for topics in written for name, _ in topics}


def replaced_topics(written: Iterable[TopicIds], now: Mapping[str, bytes]) -> list[str]:
    """The topics that have had more than one id: to one task and another, or now."""
    ids: dict[str, set[bytes]] = {}
    for topics in (*written, tuple(now.items())):
        for name, topic_id in topics:
            ids.setdefault(name, set()).add(topic_id)
    return sorted(name for name, known in ids.items() if len(known) > 1)


def replacement(names: Collection[str]) -> str:
    """What has become of them, in words."""
    return f"{', '.join(names)} was deleted and created again while rows were written to it"
