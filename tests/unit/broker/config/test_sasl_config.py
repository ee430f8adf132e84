"""SASL in the settings: what a listener serves, and what is refused at the start with the setting to change."""

from collections.abc import Iterable

import pytest

from oncelog.broker.config.listeners import checked_listeners, inter_broker_login, sasl_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import LoadedConfig, load_config
from oncelog.protocol.sasl.login import SaslLogin

LISTENERS = "listeners=SASL_PLAINTEXT://localhost:1,INTERNAL://localhost:2"
MAP = "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = f'{PLAIN} required username="broker" password="b-secret" user_broker="b-secret" user_alice="a-secret";'
ONE = ("listeners=SASL_PLAINTEXT://localhost:1",)
CLUSTER = ("zookeeper.connect=localhost:2181",)


def load(settings: Iterable[str]) -> LoadedConfig:
    return load_config(overrides=settings, environment={})


def test_settings_of_narrower_scope_win() -> None:
    config = load(
        [
            LISTENERS,
            MAP,
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            "listener.name.internal.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f'plain.sasl.jaas.config={PLAIN} required user_all="1";',
            f"listener.name.internal.plain.sasl.jaas.config={USERS}",
            "connections.max.reauth.ms=1000",
            "listener.name.internal.scram-sha-256.connections.max.reauth.ms=2000",
        ]
    ).config
    served = sasl_listeners(config, checked_listeners(config))
    assert served["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-512",)
    assert served["SASL_PLAINTEXT"].max_reauth_ms == {"SCRAM-SHA-512": 1000}
    assert served["INTERNAL"].mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert served["INTERNAL"].plain_users == {"broker": "b-secret", "alice": "a-secret"}
    assert served["INTERNAL"].max_reauth_ms == {"PLAIN": 1000, "SCRAM-SHA-256": 2000}


def test_users_may_be_in_a_setting_without_a_listener() -> None:
    for key in ("plain.sasl.jaas.config", "sasl.jaas.config"):
        config = load([*ONE, "sasl.enabled.mechanisms=PLAIN", f"{key}={USERS}"]).config
        assert sasl_listeners(config, checked_listeners(config))["SASL_PLAINTEXT"].plain_users["alice"] == "a-secret"


def test_brokers_log_in_with_the_login_of_their_listener() -> None:
    prefix = "listener.name.sasl_plaintext"
    config = load(
        [
            *ONE,
            *CLUSTER,
            f"{prefix}.sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            "security.inter.broker.protocol=SASL_PLAINTEXT",
            f"{prefix}.plain.sasl.jaas.config={USERS}",
        ]
    ).config
    login = inter_broker_login(config, checked_listeners(config))
    assert isinstance(login, SaslLogin)
    assert (login.mechanism, login.username, login.password) == ("PLAIN", "broker", "b-secret")


JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
ENABLED = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (ONE, r"sasl\.enabled\.mechanisms=GSSAPI names GSSAPI for listener SASL_PLAINTEXT, which is not served "
              r"and is Kafka's default: set listener\.name\.sasl_plaintext\.sasl\.enabled\.mechanisms to one or more"),
        ((*ONE, f"{ENABLED}=oauthbearer"), "names oauthbearer .* which is not served: set"),
        ((*ONE, f"{ENABLED}=scram-sha-256"), "names scram-sha-256"),
        ((*ONE, f"{ENABLED}="), "is empty for listener SASL_PLAINTEXT"),
        ((*ONE, f"{ENABLED}=PLAIN"), f"PLAIN is enabled on listener SASL_PLAINTEXT without users: set {JAAS} to"),
        ((*ONE, f"{ENABLED}=PLAIN", f'{JAAS}={PLAIN} required username="b" password="a-secret";'), "has no users"),
        ((*ONE, f"{ENABLED}=PLAIN", f'{JAAS}={PLAIN} required user_="a-secret";'), "without a name"),
        ((*ONE, f"{ENABLED}=PLAIN", f'{JAAS}={SCRAM} required user_a="a-secret";'), "another login module"),
        ((*ONE, f"{ENABLED}=PLAIN", f'{JAAS}=com.evil.JndiLoginModule required user_a="a-secret";'), "is not known"),
        ((*ONE, f"{ENABLED}=SCRAM-SHA-256", f"{JAAS}=com.evil.JndiLoginModule required;"), "is not known"),
        ((*ONE, f"{ENABLED}=SCRAM-SHA-256", "scram-sha-256.connections.max.reauth.ms=soon"), "is not valid"),
        ((*ONE, f"{ENABLED}=SCRAM-SHA-256", "listener.name.saslplaintext.sasl.enabled.mechanisms=PLAIN"),
         "is for a listener saslplaintext, which is none of listeners: expected one of sasl_plaintext"),
        ((*ONE, *CLUSTER, f"{ENABLED}=SCRAM-SHA-256"),
         r"sasl\.mechanism\.inter\.broker\.protocol=GSSAPI is not served and is Kafka's default, and brokers"),
        ((*ONE, *CLUSTER, f"{ENABLED}=SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol=PLAIN"),
         f"PLAIN is not enabled on listener SASL_PLAINTEXT.* add it to {ENABLED}"),
        ((*ONE, *CLUSTER, f"{ENABLED}=SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"),
         r"listener\.name\.sasl_plaintext\.scram-sha-256\.sasl\.jaas\.config is missing: this broker needs a login"),
        ((*ONE, *CLUSTER, f"{ENABLED}=PLAIN", f'{JAAS}={PLAIN} required user_a="a-secret";',
          "sasl.mechanism.inter.broker.protocol=PLAIN"), "lacks the option username, for this broker's login"),
    ],
)  # fmt: skip
def test_setting_that_cannot_work_is_refused_without_its_secrets(settings: tuple[str, ...], sentence: str) -> None:
    config = load(settings).config
    with pytest.raises(ConfigError, match=sentence) as refused:
        checked_listeners(config)
    assert "a-secret" not in str(refused.value)


def test_settings_that_are_served_are_neither_unknown_nor_without_effect() -> None:
    loaded = load([*ONE, f"{ENABLED}=PLAIN", f"{JAAS}={USERS}", "listener.name.sasl_plaintext.num.network.threads=9"])
    assert loaded.warnings == ()
    about = [remark for remark in loaded.remarks if "listener.name" in remark]
    assert about == ["listener.name.sasl_plaintext.num.network.threads has no effect: it is not served yet"]
    assert "secret" not in f"{loaded.warnings}{loaded.remarks}"


def test_settings_of_a_listener_come_from_the_environment_too() -> None:
    environment = {
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://localhost:1",
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-512",
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": USERS,
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_SCRAM___SHA___512_CONNECTIONS_MAX_REAUTH_MS": "5000",
    }
    loaded = load_config(environment=environment)
    served = sasl_listeners(loaded.config, checked_listeners(loaded.config))["SASL_PLAINTEXT"]
    assert served.plain_users["alice"] == "a-secret"
    assert served.max_reauth_ms == {"PLAIN": 0, "SCRAM-SHA-512": 5000}
    assert loaded.warnings == ()
