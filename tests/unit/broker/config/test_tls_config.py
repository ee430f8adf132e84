"""TLS as the settings have it."""

import pytest

from oncelog.broker.config.listeners import checked_listeners, inter_broker_login, tls_listeners
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config
from oncelog.broker.config.tls_config import TlsListener

ONE = ["listeners=SSL://localhost:1,SASL_SSL://localhost:2,PLAINTEXT://localhost:3"]
SASL = [
    "listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_a="b";',
]
KEY = "ssl.keystore.location=/etc/key.pem"
TRUST = "ssl.truststore.location=/etc/trust.pem"


def parsed(*settings: str) -> dict[str, TlsListener]:
    config = load_config(overrides=[*ONE, *SASL, *settings]).config
    return tls_listeners(config, checked_listeners(config))


def test_general_settings_are_those_of_every_listener_with_tls() -> None:
    found = parsed(KEY, "ssl.keystore.password=open", "ssl.enabled.protocols=TLSv1.3")
    assert found.keys() == {"SSL", "SASL_SSL"}
    assert {each.key_store.location for each in found.values()} == {"/etc/key.pem"}
    assert found["SSL"].versions == ("TLSv1.3",)
    assert found["SSL"].client_auth == "none"
    assert found["SSL"].trust_store is None
    assert "open" not in repr(found)


def test_settings_of_one_listener_count_before_general_ones() -> None:
    found = parsed(KEY, "listener.name.ssl.ssl.keystore.location=/own.p12")
    assert found["SSL"].key_store.location == "/own.p12"
    assert found["SSL"].key_store.key == "listener.name.ssl.ssl.keystore.location"
    assert found["SASL_SSL"].key_store.key == "ssl.keystore.location"


def test_client_certificates_of_a_sasl_listener_are_required_only_by_its_own_setting() -> None:
    assert parsed(KEY, TRUST, "ssl.client.auth=required")["SASL_SSL"].client_auth == "none"
    assert parsed(KEY, TRUST, "ssl.client.auth=required")["SSL"].client_auth == "required"
    own = parsed(KEY, TRUST, "listener.name.sasl_ssl.ssl.client.auth=required")
    assert own["SASL_SSL"].client_auth == "required"


def test_key_itself_takes_the_place_of_a_file() -> None:
    store = parsed("ssl.keystore.key=PRIVATE", "ssl.keystore.certificate.chain=PUBLIC")["SSL"].key_store
    assert (store.location, store.pem) == (None, "PRIVATE\nPUBLIC")
    assert "PRIVATE" not in repr(store)


def test_brokers_log_in_to_each_other_over_tls() -> None:
    config = load_config(
        overrides=[
            "listeners=SASL_SSL://localhost:2",
            "zookeeper.connect=localhost:1",
            KEY,
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            SASL[0],
            SASL[1].replace("required ", 'required username="a" password="b" '),
        ]
    ).config
    login = inter_broker_login(config, checked_listeners(config))
    assert login is not None
    assert login.username == "a"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([], "listener.name.ssl.ssl.keystore.location is missing: listener SSL has TLS"),
        (["ssl.keystore.key=X"], "certificate.chain is missing for listener SSL"),
        ([KEY, "ssl.keystore.key=X", "ssl.keystore.certificate.chain=Y"], "leave one out"),
        ([KEY, TRUST, "ssl.truststore.certificates=Y"], "leave one out"),
        ([KEY, "ssl.client.auth=required"], "without certificates of those who are trusted"),
        ([KEY, "ssl.enabled.protocols=TLSv1.1"], "expected a list of TLSv1.2, TLSv1.3"),
        ([KEY, "listener.name.ssl.ssl.enabled.protocols=SSLv3"], "expected a list of TLSv1.2, TLSv1.3"),
        ([KEY, "ssl.cipher.suites=TLS_AES_128_GCM_SHA256"], "TLS 1.3"),
        ([KEY, "ssl.endpoint.identification.algorithm=LDAPS"], "expected https, or nothing"),
        ([KEY, "listener.name.other.ssl.keystore.location=/x"], "which is none of listeners"),
        ([KEY, "listener.name.plaintext.ssl.keystore.location=/x"], "has no effect: listener plaintext has no TLS"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parsed(*settings)


def test_empty_list_of_versions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols is empty"):
        parsed(KEY, "ssl.enabled.protocols=")
