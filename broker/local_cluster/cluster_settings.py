"""The settings of the brokers of a cluster on one machine, beside those that the user gives with ``--set``. Pure.

On ZooKeeper nothing counts the brokers by itself; here their number is known, so topics get as many replicas as there
is room for, three at most. What differs from Kafka's defaults is printed when the cluster starts.
"""

import re
from collections.abc import Iterable
from typing import Final

_OF_ONE_BROKER: Final = re.compile(r"(\d+):(.*)", re.DOTALL)
_MOST_REPLICAS: Final = 3
_ALWAYS: Final = {"zookeeper.session.timeout.ms": "10000"}
"""Shorter than the default: on one machine nothing but a broker itself keeps it from being heard."""


def default_settings(brokers: int) -> dict[str, str]:
    """Return the settings that follow from the number of brokers."""
    replicas = min(_MOST_REPLICAS, brokers)
    in_sync = 2 if replicas == _MOST_REPLICAS else 1
    settings = {"default.replication.factor": str(replicas), "min.insync.replicas": str(in_sync)}
    if replicas < _MOST_REPLICAS:
        settings["offsets.topic.replication.factor"] = str(replicas)
        settings["transaction.state.log.replication.factor"] = str(replicas)
        settings["transaction.state.log.min.isr"] = str(in_sync)
    return settings


def settings_of(broker_id: int, brokers: int, given: Iterable[str]) -> list[str]:
    """Return the settings of one of so many brokers, ``key=value`` each.

    ``given`` is what the user set: ``key=value`` of all brokers, or ``ID:key=value`` of one, which wins.
    """
    of_all: dict[str, str] = {}
    of_this: dict[str, str] = {}
    for text in given:
        match = _OF_ONE_BROKER.fullmatch(text)
        if match is None or int(match[1]) == broker_id:
            key, _, value = (text if match is None else match[2]).partition("=")
            (of_all if match is None else of_this)[key.strip()] = value
    settings = {**_ALWAYS, **default_settings(brokers), **of_all, **of_this}
    return [f"{key}={value}" for key, value in settings.items()]


def addressee(setting: str) -> int | None:
    """Return the id of the broker that a setting is for; None if it is for all."""
    match = _OF_ONE_BROKER.fullmatch(setting)
    return None if match is None else int(match[1])


def brokers_with_listeners(given: Iterable[str], broker_ids: Iterable[int]) -> set[int]:
    """Return the brokers that listen at addresses of the user's settings, and not at their port of the layout."""
    texts = list(given)
    return {each for each in broker_ids if any(text.startswith("listeners=") for text in settings_of(each, 1, texts))}
