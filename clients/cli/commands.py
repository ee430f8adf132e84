"""``commands``: the group of all commands that talk to a cluster.

``oncelog`` is assembled elsewhere, from these and from those that run a broker or inspect its files.
"""

from typing import Final

from clients.cli.lazy_group import LazyGroup

commands: Final = LazyGroup(
    "oncelog",
    lazy={
        "config": "clients.cli.config:config",
        "consume": "clients.cli.consume:consume",
        "doctor": "clients.cli.doctor:doctor",
        "feature": "clients.cli.feature:feature",
        "group": "clients.cli.group:group",
        "health": "clients.cli.health:health",
        "log-dirs": "clients.cli.log_dirs:log_dirs",
        "produce": "clients.cli.produce:produce",
        "topic": "clients.cli.topic:topic",
        "txn": "clients.cli.txn:txn",
        "version": "clients.cli.version:version",
        "wait": "clients.cli.health:wait",
    },
)
