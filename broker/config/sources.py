"""Where a broker's configuration comes from, and what is said about it.

Later sources win: the table's defaults, ``server.properties``, ``KAFKA_CFG_*``, ``KAFKA_*``, ``--set key=value``. The
environment's names are those of Kafka's images: ``_`` for a dot, ``__`` for an underscore, ``___`` for a hyphen.

Nothing is ignored in silence. An unknown key is a warning that names the nearest known one; a key that is known and
does nothing is a remark; a value that does not parse, or a key that promises what this broker cannot keep, is a
``ConfigError``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.broker.config import access_control, zookeeper_config
from oncelog.broker.config.broker_config import BROKER_SETTINGS, NO_CLEANUP_POLICY, BrokerConfig, attribute
from oncelog.broker.config.prefixed_settings import is_prefixed
from oncelog.broker.config.settings import ConfigError, did_you_mean, nearest_key
from oncelog.broker.config.zookeeper_config import zookeeper_access
from oncelog.protocol.properties import parse_properties

_NOT_SETTINGS: Final = re.compile(
    r"KAFKA_(HOME|VERSION|OPTS|HEAP_OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|LOG4J_\w+|JMX_\w+|DEBUG|CLASSPATH"
    r"|TOOLS_\w+|BOOTSTRAP_SERVERS|CREATE_TOPICS|ADVERTISED_HOST_NAME|CLUSTERS_\w+|BROKERS)"
)
"""Variables of Kafka's scripts, of its images and of client tools."""

_UNSERVED_VARIABLES: Final = {
    "KAFKA_CREATE_TOPICS": "create topics with `oncelog topic create`",
    "KAFKA_ADVERTISED_HOST_NAME": "set the address for clients in KAFKA_ADVERTISED_LISTENERS",
}
"""Those among them from which a broker is expected to do something, and what to do instead."""

_JAAS_FILE: Final = "java.security.auth.login.config"
_JAAS_FILE_ADVICE: Final = (
    "KAFKA_OPTS names a JAAS file, which is not read: set listener.name.NAME.MECHANISM.sasl.jaas.config for listeners, "
    "and oncelog.zookeeper.sasl.jaas.config for ZooKeeper"
)

_UNSERVED_FAMILIES: Final = (
    "ssl.", "sasl.", "listener.name.", "remote.log.", "group.consumer.", "group.share.", "group.streams.", "share.",
    "confluent.", "controller.quorum.", "controller.quota.", "quota.", "metrics.", "metric.", "log.cleaner.",
    "inter.broker.protocol.version", "password.encoder.", "client.quota.callback.class", "principal.builder.class",
    "group.coordinator.", "compression.", "metadata.log.", "create.topic.policy.class.name",
    "alter.config.policy.class.name", "kafka.metrics.", "broker.heartbeat.", "broker.session.", "initial.broker.",
)  # fmt: skip
"""Beginnings of Kafka's keys that are known and do nothing here."""

_RENAMED: Final[Mapping[str, str]] = {
    "oncelog.end.txn.answer.ms": "oncelog.end.txn.response.ms",
    "delegation.token.master.key": "delegation.token.secret.key",  # In Kafka before 4.0.
}
"""Former names of settings, accepted with a warning for one minor release, and their present names."""

_WITH_CAPITALS: Final = {key.lower(): key for key in BROKER_SETTINGS if key != key.lower()}
"""Keys that the name of an environment variable does not show as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration, and the log lines for the operator about it, in order."""

    config: BrokerConfig
    warnings: tuple[str, ...]
    """Probably mistakes."""
    remarks: tuple[str, ...]
    """Worth knowing."""


def load_config(
    *, properties: str = "", environment: Mapping[str, str] | None = None, overrides: Iterable[str] = ()
) -> LoadedConfig:
    """Read every source; ConfigError when the broker must not start with what they say."""
    given = {
        **parse_properties(properties),
        **settings_in_environment(environment or {}),
        **dict(_parse_override(text) for text in overrides),
    }
    renamed = [key for key in given if key in _RENAMED]
    given = {**{_RENAMED[key]: given[key] for key in renamed}, **{k: v for k, v in given.items() if k not in _RENAMED}}
    known = {key: text for key, text in given.items() if key in BROKER_SETTINGS}
    prefixed = {key: text for key, text in given.items() if key not in known and is_prefixed(key)}
    values: dict[str, Any] = {attribute(key): BROKER_SETTINGS[key].parse(text) for key, text in known.items()}
    config = _consistent(BrokerConfig(**values, given=known, prefixed=prefixed))
    others = [key for key in given if key not in known and key not in prefixed]
    warnings = [_unknown(key) for key in others if not _in_unserved_family(key)]
    warnings += [
        f"{key} is called {_RENAMED[key]}: the former name ends with the next minor release" for key in renamed
    ]
    warnings += [
        f"{name} does nothing here: {instead}"
        for name, instead in _UNSERVED_VARIABLES.items()
        if environment and environment.get(name)
    ]
    if _JAAS_FILE in (environment or {}).get("KAFKA_OPTS", ""):
        warnings.append(_JAAS_FILE_ADVICE)
    warnings += access_control.warnings(config)
    remarks = [*_unused(known), *_unserved(others), *zookeeper_config.remarks(config), *_embedded(config)]
    return LoadedConfig(
        config=config.with_embedded_defaults() if config.is_embedded else config,
        warnings=tuple(warnings),
        remarks=tuple(remarks),
    )


def settings_in_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among environment variables: ``KAFKA_CFG_*`` first, so that ``KAFKA_*`` wins."""
    found: dict[str, str] = {}
    for prefix in ("KAFKA_CFG_", "KAFKA_"):
        for name in sorted(environment):
            if name.startswith(prefix) and not (prefix == "KAFKA_" and name.startswith("KAFKA_CFG_")):
                if not _NOT_SETTINGS.fullmatch(name):
                    found[_key_of_variable(name.removeprefix(prefix))] = environment[name]
    return found


def _key_of_variable(name: str) -> str:
    key = re.sub("_{1,3}", lambda run: ("", ".", "_", "-")[len(run[0])], name.lower())
    return _WITH_CAPITALS.get(key, key)


def _parse_override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not a setting: expected key=value")
    return key.strip(), value.strip()


def variable_of_key(key: str) -> str:
    """Return the environment variable that sets a key."""
    return "KAFKA_" + key.replace("_", "__").replace(".", "_").replace("-", "___").upper()


def _unknown(key: str) -> str:
    return f"unknown setting {key}{did_you_mean(nearest_key(key, BROKER_SETTINGS))}"


def _in_unserved_family(key: str) -> bool:
    return key.startswith(_UNSERVED_FAMILIES)


def _unused(known: Iterable[str]) -> Iterator[str]:
    for key in known:
        if BROKER_SETTINGS[key].unused:
            yield f"{key} has no effect: {BROKER_SETTINGS[key].unused}"


def _unserved(others: Iterable[str]) -> Iterator[str]:
    for key in others:
        if _in_unserved_family(key):
            yield f"{key} has no effect: it is not served yet"


def _embedded(config: BrokerConfig) -> Iterator[str]:
    if not config.is_embedded:
        return
    lowered = [
        f"{key}={setting.embedded}"
        for key, setting in BROKER_SETTINGS.items()
        if setting.embedded is not None and key not in config.given
    ]
    if lowered:
        yield f"one broker on the embedded metadata store: {', '.join(lowered)}"


def _consistent(config: BrokerConfig) -> BrokerConfig:
    """Refuse what no single key shows to be wrong; resolve the keys that have two names."""
    if config.node_id is not None:
        if config.broker_id not in (-1, config.node_id):
            raise ConfigError(f"broker.id={config.broker_id} and node.id={config.node_id} differ: set one of them")
        config = replace(config, broker_id=config.node_id)
    zookeeper_access(config)
    access_control.check(config)
    if "," in config.data_dir:
        raise ConfigError(f"log.dirs={config.data_dir} is not served yet: expected one directory")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms is larger than group.max.session.timeout.ms")
    if not config.log_cleanup_policy:
        raise ConfigError(NO_CLEANUP_POLICY)
    return config
