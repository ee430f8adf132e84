"""What DescribeConfigs returns about a setting: its value, where that comes from, and what stands behind it.

A value has a chain of synonyms, the first of which is in force: the topic's override, this broker's override, the one
for all brokers, what the operator wrote at the start, the default. The broker's setting that stands behind a topic's
has another name. Of several, only the first is shown, as Kafka does: a ``retention.ms`` that comes from
``log.retention.hours`` has no synonym, and its source is the default. A generated broker id is described as if the
operator had set it, as Kafka does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.broker.config import topic_config
from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.dynamic_config import DYNAMIC_KEYS, current_config
from oncelog.broker.config.prefixed_settings import is_dynamic, is_secret
from oncelog.broker.config.resource_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, group_synonym
from oncelog.broker.config.settings import Kind, Setting
from oncelog.broker.config.topic_config import SYNONYMS, TOPIC_SETTINGS
from oncelog.broker.parts import Broker
from oncelog.protocol.config_source import ConfigSource

_IDENTITY: Final = ("broker.id", "node.id")


class ConfigSynonym(NamedTuple):
    """One link of the chain. A sensitive value is None."""

    key: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting, described."""

    key: str
    value: str | None
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    setting: Setting

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG

    @property
    def is_sensitive(self) -> bool:
        return self.setting.kind is Kind.PASSWORD


class ConfigDescription:
    """Describes the configuration of topics, of this broker, and of all brokers."""

    def __init__(self, broker: Broker) -> None:
        self._static = broker.config
        self._given = {**broker.config.given, **dict.fromkeys(_IDENTITY, str(broker.broker_id))}
        self._own = broker.configs.broker_overrides(broker.broker_id)
        self._common = broker.configs.cluster_overrides()
        self._current = current_config(broker.config, broker.configs, broker.broker_id)

    def topic(self, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield every setting of a topic that has these overrides."""
        return (self.topic_entry(key, overrides) for key in TOPIC_SETTINGS)

    def topic_entry(self, key: str, overrides: Mapping[str, str]) -> ConfigEntry:
        """Return one setting of a topic that has these overrides."""
        setting = TOPIC_SETTINGS[key]
        default = setting.format(topic_config.default_value(self._current, key))
        return _entry(setting, overrides.get(key, default), list(self._topic_synonyms(key, overrides)))

    def group(self, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield every setting of a group that has these overrides. The synonym of each is a broker's setting."""
        for key, setting in GROUP_SETTINGS.items():
            default = setting.format(setting.default)
            synonyms = [ConfigSynonym(key=group_synonym(key), value=default, source=ConfigSource.DEFAULT_CONFIG)]
            if key in overrides:
                synonyms.insert(0, ConfigSynonym(key=key, value=overrides[key], source=ConfigSource.GROUP_CONFIG))
            yield _entry(setting, synonyms[0].value, synonyms)

    def client_metrics(self, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield every setting of a subscription that has these overrides."""
        source = ConfigSource.CLIENT_METRICS_CONFIG
        for key, setting in CLIENT_METRICS_SETTINGS.items():
            synonyms = [ConfigSynonym(key=key, value=overrides[key], source=source)] if key in overrides else []
            yield _entry(setting, overrides.get(key, setting.format(setting.default)), synonyms)

    def broker(self) -> Iterator[ConfigEntry]:
        """Yield every setting of this broker."""
        for key, setting in BROKER_SETTINGS.items():
            synonyms = tuple(self._broker_synonyms(key))
            yield ConfigEntry(
                key=key,
                value=synonyms[0].value if synonyms else None,
                is_read_only=key not in DYNAMIC_KEYS,
                synonyms=synonyms,
                setting=setting,
            )

        for key in dict.fromkeys([*self._static.prefixed, *filter(is_dynamic, [*self._common, *self._own])]):
            yield self._prefixed(key)

    def all_brokers(self) -> Iterator[ConfigEntry]:
        """Yield the overrides that hold for every broker."""
        for key, value in self._common.items():
            if key in BROKER_SETTINGS:
                synonym = _synonym(key, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
                yield ConfigEntry(
                    key=key,
                    value=synonym.value,
                    is_read_only=key not in DYNAMIC_KEYS,
                    synonyms=(synonym,),
                    setting=BROKER_SETTINGS[key],
                )
            elif is_dynamic(key):
                synonyms = (ConfigSynonym(key=key, value=value, source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),)
                setting = _prefixed_setting(key)
                yield ConfigEntry(key=key, value=value, is_read_only=False, synonyms=synonyms, setting=setting)

    def _prefixed(self, key: str) -> ConfigEntry:
        """Return a setting of one listener or mechanism, of which there may be overrides."""
        setting = _prefixed_setting(key)
        found = (
            (self._own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._common, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static.prefixed, ConfigSource.STATIC_BROKER_CONFIG),
        )
        synonyms = tuple(
            ConfigSynonym(key=key, value=None if setting.kind is Kind.PASSWORD else values[key], source=source)
            for values, source in found
            if key in values and (source is ConfigSource.STATIC_BROKER_CONFIG or is_dynamic(key))
        )
        value, is_read_only = synonyms[0].value, not is_dynamic(key)
        return ConfigEntry(key=key, value=value, is_read_only=is_read_only, synonyms=synonyms, setting=setting)

    def _topic_synonyms(self, key: str, overrides: Mapping[str, str]) -> Iterator[ConfigSynonym]:
        if key in overrides:
            yield ConfigSynonym(key=key, value=overrides[key], source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for synonym in SYNONYMS.get(key, ())[:1]:
            yield from self._broker_synonyms(synonym.key)

    def _broker_synonyms(self, key: str) -> Iterator[ConfigSynonym]:
        for overrides, source in (
            (self._own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._common, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._given, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if key in overrides:
                yield _synonym(key, overrides[key], source)
        setting = BROKER_SETTINGS[key]
        is_embedded_default = setting.embedded is not None and self._static.is_embedded
        default = setting.format(setting.embedded if is_embedded_default else setting.default)
        if default is not None:
            yield _synonym(key, default, ConfigSource.DEFAULT_CONFIG)


def _entry(setting: Setting, value: str | None, synonyms: Sequence[ConfigSynonym]) -> ConfigEntry:
    return ConfigEntry(key=setting.key, value=value, is_read_only=False, synonyms=tuple(synonyms), setting=setting)


def _prefixed_setting(key: str) -> Setting:
    kind = Kind.PASSWORD if is_secret(key) else Kind.STRING
    return Setting(key=key, kind=kind, default=None, doc="A setting of one listener or SASL mechanism.")


def _synonym(key: str, value: str, source: ConfigSource) -> ConfigSynonym:
    is_sensitive = BROKER_SETTINGS[key].kind is Kind.PASSWORD
    return ConfigSynonym(key=key, value=None if is_sensitive else value, source=source)
