"""The settings of the connection to ZooKeeper: what they mean, and which are refused because they protect nothing."""

import pytest

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.settings import ConfigError, Kind
from oncelog.broker.config.sources import LoadedConfig, load_config
from oncelog.broker.config.zookeeper_config import zookeeper_access
from oncelog.clients.tls import TlsSettings
from oncelog.protocol.sasl.digest_login import DIGEST_MODULE, DigestLogin

CONNECT = "zookeeper.connect=localhost:2181"
TLS = "zookeeper.ssl.client.enable=true"
LOGIN = f'oncelog.zookeeper.sasl.jaas.config={DIGEST_MODULE} required username="kafka" password="sesame";'
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


def load(*overrides: str) -> LoadedConfig:
    return load_config(overrides=overrides)


def tls_of(*overrides: str) -> TlsSettings:
    settings = zookeeper_access(load(CONNECT, TLS, *overrides).config).tls
    assert settings is not None
    return settings


def test_access_without_settings_is_plain_and_anonymous() -> None:
    access = zookeeper_access(load(CONNECT).config)
    assert (access.tls, access.login, access.protects_znodes, access.has_user) == (None, None, False, False)


def test_access_has_login_stores_and_protection_of_the_settings() -> None:
    loaded = load(
        CONNECT,
        TLS,
        LOGIN,
        "zookeeper.set.acl=true",
        f"zookeeper.clientCnxnSocket={NETTY}",
        "zookeeper.ssl.truststore.location=/t.p12",
        "zookeeper.ssl.truststore.password=sesame",
        "zookeeper.ssl.truststore.type=PKCS12",
        "zookeeper.ssl.keystore.location=/k.pem",
        "zookeeper.ssl.keystore.password=sesame",
        "zookeeper.ssl.keystore.type=PEM",
    )
    access = zookeeper_access(loaded.config)
    assert access.login == DigestLogin(username="kafka", password="sesame")
    assert access.protects_znodes
    assert access.tls == TlsSettings(
        trusted_file="/t.p12", trusted_password="sesame", trusted_type="PKCS12",
        own_file="/k.pem", own_password="sesame", own_type="PEM",
    )  # fmt: skip
    assert "sesame" not in f"{access!r}"
    assert [remark for remark in loaded.remarks if "clientCnxnSocket" in remark]


@pytest.mark.parametrize(
    ("overrides", "versions"),
    [
        ([], ("TLSv1.2", "TLSv1.3")),
        (["zookeeper.ssl.protocol=TLS"], ("TLSv1.2", "TLSv1.3")),
        (["zookeeper.ssl.protocol=TLSv1.2"], ("TLSv1.2",)),
        (["zookeeper.ssl.protocol=TLSv1.2", "zookeeper.ssl.enabled.protocols=TLSv1.3"], ("TLSv1.3",)),
    ],
)
def test_versions_are_those_enabled_or_the_one_protocol_or_both(overrides: list[str], versions: tuple[str]) -> None:
    assert tls_of(*overrides).versions == versions


@pytest.mark.parametrize(("value", "checks"), [("HTTPS", True), ("https", True), ("", False)])
def test_host_name_is_compared_unless_the_setting_is_empty(value: str, checks: bool) -> None:
    assert tls_of(f"zookeeper.ssl.endpoint.identification.algorithm={value}").checks_host is checks
    assert tls_of().checks_host


def test_cipher_suites_may_have_the_names_of_java() -> None:
    named = "zookeeper.ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,ECDHE-ECDSA-AES128-GCM-SHA256"
    assert tls_of(named).cipher_suites == ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([CONNECT, "zookeeper.set.acl=true"], "zookeeper.set.acl=true needs a user of ZooKeeper"),
        ([CONNECT, TLS, "zookeeper.set.acl=true"], "zookeeper.set.acl=true needs a user of ZooKeeper"),
        (["zookeeper.set.acl=true"], "zookeeper.set.acl has no effect without zookeeper.connect"),
        ([LOGIN], "oncelog.zookeeper.sasl.jaas.config has no effect without zookeeper.connect"),
        ([TLS], "zookeeper.ssl.client.enable has no effect without zookeeper.connect"),
        (
            [CONNECT, "zookeeper.ssl.truststore.location=/t"],
            "zookeeper.ssl.truststore.location has no effect without zookeeper.ssl.client.enable=true",
        ),
        (
            [CONNECT, "zookeeper.ssl.keystore.password=sesame"],
            "zookeeper.ssl.keystore.password has no effect without zookeeper.ssl.client.enable=true",
        ),
        (
            [CONNECT, TLS, "zookeeper.ssl.truststore.password=sesame"],
            "zookeeper.ssl.truststore.password has no effect without zookeeper.ssl.truststore.location",
        ),
        (
            [CONNECT, TLS, "zookeeper.ssl.keystore.type=PEM"],
            "zookeeper.ssl.keystore.type has no effect without zookeeper.ssl.keystore.location",
        ),
        ([CONNECT, TLS, "zookeeper.ssl.crl.enable=true"], "zookeeper.ssl.crl.enable=true is refused"),
        ([CONNECT, TLS, "zookeeper.ssl.ocsp.enable=true"], "zookeeper.ssl.ocsp.enable=true is refused"),
        (
            [CONNECT, TLS, "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNIO"],
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNIO is refused",
        ),
        (
            [CONNECT, TLS, "zookeeper.ssl.endpoint.identification.algorithm=htps"],
            "zookeeper.ssl.endpoint.identification.algorithm=htps is not valid",
        ),
        ([CONNECT, TLS, "zookeeper.ssl.cipher.suites=TLS_AES_128_GCM_SHA256"], "zookeeper.ssl.cipher.suites has"),
        ([CONNECT, TLS, "zookeeper.ssl.protocol=TLSv1.1"], "zookeeper.ssl.protocol='TLSv1.1' is not valid"),
        ([CONNECT, LOGIN.replace("Digest", "Krb5")], "oncelog.zookeeper.sasl.jaas.config names a login module"),
        ([CONNECT, LOGIN.removesuffix(";")], "oncelog.zookeeper.sasl.jaas.config does not end in a semicolon"),
    ],
)
def test_setting_that_cannot_work_or_protects_nothing_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(*overrides)
    assert str(refused.value).startswith(message)
    assert "sesame" not in str(refused.value)


def test_tls_that_is_switched_off_by_name_leaves_its_settings_without_effect() -> None:
    for connect in ([CONNECT], []):
        loaded = load(*connect, "zookeeper.ssl.client.enable=false", "zookeeper.ssl.keystore.location=/k")
        assert "zookeeper.ssl.keystore.location has no effect: zookeeper.ssl.client.enable=false" in loaded.remarks
        assert zookeeper_access(loaded.config).tls is None


def test_login_in_a_file_of_the_jvm_is_a_warning_that_names_the_settings() -> None:
    options = "-Xmx1G -Djava.security.auth.login.config=/etc/kafka/jaas.conf"
    (warning,) = load_config(environment={"KAFKA_OPTS": options}).warnings
    assert "oncelog.zookeeper.sasl.jaas.config" in warning


def test_secrets_among_the_settings_are_never_described() -> None:
    secret = {key for key, setting in BROKER_SETTINGS.items() if setting.kind is Kind.PASSWORD}
    assert secret >= {
        "oncelog.zookeeper.sasl.jaas.config",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
    }


def test_setting_with_capitals_is_found_in_the_environment() -> None:
    loaded = load_config(environment={"KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET": NETTY})
    assert loaded.config.zookeeper_clientCnxnSocket == NETTY
