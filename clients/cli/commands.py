"""``commands``: the group of all commands that talk to a cluster.

``oncelog`` is assembled elsewhere, from these and from those that run a broker or inspect its files.
"""

from typing import Final

from oncelog.clients.cli.lazy_group import LazyGroup

commands: Final = LazyGroup(
    "oncelog",
    lazy={
        "acl": "oncelog.clients.cli.acl:acl",
        "config": "oncelog.clients.cli.config:config",
        "consume": "oncelog.clients.cli.consume:consume",
        "doctor": "oncelog.clients.cli.doctor:doctor",
        "feature": "oncelog.clients.cli.feature:feature",
        "group": "oncelog.clients.cli.group:group",
        "health": "oncelog.clients.cli.health:health",
        "log-dirs": "oncelog.clients.cli.log_dirs:log_dirs",
        "produce": "oncelog.clients.cli.produce:produce",
        "quota": "oncelog.clients.cli.quota:quota",
        "tls": "oncelog.clients.cli.tls:tls",
        "token": "oncelog.clients.cli.token:token",
        "topic": "oncelog.clients.cli.topic:topic",
        "txn": "oncelog.clients.cli.txn:txn",
        "user": "oncelog.clients.cli.user:user",
        "verify-history": "oncelog.clients.cli.verify_history:verify_history",
        "version": "oncelog.clients.cli.version:version",
        "wait": "oncelog.clients.cli.health:wait",
    },
)
