"""The settings of TLS and authentication of producer, consumer and administration."""

import pickle
from typing import Any

import pytest

from oncelog import Admin, AdminConfig, Consumer, ConsumerConfig, Producer, ProducerConfig, TlsSettings
from oncelog.clients.setting_error import SettingError
from oncelog.protocol.sasl.login import OauthLogin, SaslLogin

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONFIGS = pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminConfig])


@CONFIGS
def test_login_is_that_of_either_form(config: Any) -> None:
    common = {"bootstrap": "b:1", "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    expected = SaslLogin(mechanism="SCRAM-SHA-512", username="alice", password="wonderland")
    jaas = f'{MODULE} required username="alice" password="wonderland";'
    for given in ({"sasl_username": "alice", "sasl_password": "wonderland"}, {"sasl_jaas_config": jaas}):
        made = config(**common, **given)
        assert made.login == expected
        assert "wonderland" not in repr(made)


@CONFIGS
def test_login_by_token_is_that_of_either_form(config: Any) -> None:
    common = {"bootstrap": "b:1", "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    expected = SaslLogin(mechanism="SCRAM-SHA-256", username="id", password="aG1hYw==", is_token=True)
    jaas = f'{MODULE} required username="id" password="aG1hYw==" tokenauth="true";'
    separate = {"sasl_username": "id", "sasl_password": "aG1hYw==", "sasl_tokenauth": True}
    for given in (separate, {"sasl_jaas_config": jaas}):
        made = config(**common, **given)
        assert made.login == expected
        assert "aG1hYw" not in repr(made)


@CONFIGS
def test_login_without_settings_is_none(config: Any) -> None:
    assert config(bootstrap="b:1").login is None


@CONFIGS
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"sasl_password": "wonderland"},
            "sasl_password has no effect without security_protocol='SASL_PLAINTEXT' or 'SASL_SSL'",
        ),
        ({"security_protocol": "SSL", "sasl_password": "wonderland"}, "sasl_password has no effect without"),
        (
            {"security_protocol": "TLS"},
            "security_protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not TLS",
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_mechanism must be one of PLAIN"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, "not GSSAPI"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl_password is"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_jaas_config": "wonderland"},
            "sasl_jaas_config names a login module that is not known",
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": "x",
                "sasl_username": "a",
            },
            "leave one out",
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "wonderland",
                "sasl_tokenauth": True,
            },
            "sasl_tokenauth needs sasl_mechanism to be one of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"sasl_tokenauth": True}, "sasl_tokenauth has no effect without"),
    ],
)
def test_settings_that_make_no_login_are_refused(config: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        config(bootstrap="b:1", **given)
    assert "wonderland" not in str(refused.value)


OAUTH: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://issuer.example/token",
    "sasl_oauthbearer_client_credentials_client_id": "app",
    "sasl_oauthbearer_client_credentials_client_secret": "wonderland",
}
PASSWORD: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "wonderland",
}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def provide() -> str:
    return "t"


@CONFIGS
def test_login_by_oauth_is_that_of_either_form(config: Any) -> None:
    made = config(bootstrap="b:1", **OAUTH)
    url = "https://issuer.example/token"
    assert made.login == OauthLogin(token_endpoint_url=url, client_id="app", client_secret="wonderland")
    assert "wonderland" not in f"{made!r} {made.login!r}"
    common = {"bootstrap": "b:1", "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    made = config(**common, sasl_oauthbearer_token_provider=provide, sasl_oauthbearer_extensions="a=b, c=d=e")
    assert made.login == OauthLogin(token_provider=provide, extensions=(("a", "b"), ("c", "d=e")))
    assert config(**common, sasl_oauthbearer_token_endpoint_url="file:///run/token").login == OauthLogin(
        token_endpoint_url="file:///run/token"
    )


@CONFIGS
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": None}, "sasl_oauthbearer_token_endpoint_url is missing"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "issuer"}, "with https://, http:// or file:///, not issuer"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://[x"}, "is no address"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://u:wonderland@h/"}, "has a user or a password"),
        ({**OAUTH, "sasl_oauthbearer_token_endpoint_url": "file://host/x"}, "must be an address with"),
        ({**OAUTH, "sasl_oauthbearer_client_credentials_client_id": None}, "client_id is missing for sasl_oauthbearer"),
        ({**OAUTH, "sasl_oauthbearer_client_credentials_client_secret": ""}, "client_secret is missing"),
        (
            {**OAUTH, "sasl_oauthbearer_token_provider": provide},
            "url is given, and sasl_oauthbearer_token_provider too",
        ),
        ({**OAUTH, "sasl_username": "a"}, "sasl_username has no effect with sasl_mechanism='OAUTHBEARER'"),
        ({**OAUTH, "sasl_oauthbearer_extensions": "auth=x"}, "sasl_oauthbearer_extensions is not valid"),
        ({**OAUTH, "sasl_oauthbearer_extensions": "x"}, "an entry is without ="),
        ({**OAUTH, "sasl_jaas_config": f'{MODULE} required username="wonderland";'}, "names another login module"),
        ({**OAUTH, "sasl_jaas_config": f'{OAUTH_MODULE} required extension_a1="wonderland";'}, "that cannot be sent"),
        ({**PASSWORD, "sasl_oauthbearer_scope": "x"}, "scope has no effect without sasl_mechanism='OAUTHBEARER'"),
        ({"sasl_oauthbearer_token_provider": provide}, "has no effect without security_protocol='SASL_PLAINTEXT'"),
    ],
)
def test_settings_that_make_no_login_by_token_are_refused(config: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        config(bootstrap="b:1", **given)
    assert "wonderland" not in str(refused.value)


TLS_SETTINGS: dict[str, Any] = {
    "ssl_truststore_location": "ca.p12",
    "ssl_truststore_password": "t-wonderland",
    "ssl_truststore_type": "PKCS12",
    "ssl_keystore_location": "own.pem",
    "ssl_key_password": "k-wonderland",
    "ssl_endpoint_identification_algorithm": "",
    "ssl_enabled_protocols": ("TLSv1.3",),
    "ssl_cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
}


@CONFIGS
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_tls_settings_are_those_of_the_protocols_with_tls(config: Any, protocol: str) -> None:
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "p-wonderland"}
    made = config(bootstrap="b:1", security_protocol=protocol, **TLS_SETTINGS, **(sasl if "SASL" in protocol else {}))
    assert made.tls == TlsSettings(
        trusted_file="ca.p12",
        trusted_password="t-wonderland",
        trusted_type="PKCS12",
        own_file="own.pem",
        own_password="k-wonderland",
        checks_host=False,
        versions=("TLSv1.3",),
        cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256",),
    )
    assert (made.login is not None) == ("SASL" in protocol)
    assert "wonderland" not in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


@CONFIGS
def test_tls_settings_without_tls_are_none(config: Any) -> None:
    assert config(bootstrap="b:1").tls is None
    assert config(bootstrap="b:1").make_tls_context() is None


@CONFIGS
@pytest.mark.parametrize("name", TLS_SETTINGS)
def test_tls_setting_without_tls_is_refused(config: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} has no effect without security_protocol='SSL' or 'SASL_SSL'$"):
        config(bootstrap="b:1", **{name: TLS_SETTINGS[name]})


@CONFIGS
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ssl_truststore_location": "a", "ssl_truststore_certificates": "b"}, "ssl_truststore_location is given, and"),
        ({"ssl_truststore_password": "wonderland"}, "ssl_truststore_password has no effect without ssl_truststore_loc"),
        ({"ssl_truststore_type": "PEM"}, "ssl_truststore_type has no effect without ssl_truststore_location"),
        ({"ssl_truststore_location": "a", "ssl_truststore_type": "BKS"}, "ssl_truststore_type must be PEM or PKCS12"),
        ({"ssl_truststore_certificates": "a", "ssl_truststore_type": "PKCS12"}, "ssl_truststore_type must be PEM for"),
        ({"ssl_keystore_key": "wonderland"}, "ssl_keystore_certificate_chain is missing: ssl_keystore_key is given"),
        ({"ssl_keystore_certificate_chain": "a"}, "ssl_keystore_key is missing"),
        ({"ssl_keystore_location": "a", "ssl_keystore_key": "wonderland"}, "leave one out"),
        ({"ssl_keystore_password": "wonderland"}, "ssl_keystore_password has no effect without ssl_keystore_location"),
        ({"ssl_key_password": "wonderland"}, "ssl_key_password has no effect without ssl_keystore_location or"),
        ({"ssl_endpoint_identification_algorithm": "ldap"}, "must be https or none, not ldap"),
        ({"ssl_enabled_protocols": ("TLSv1.1",)}, "ssl_enabled_protocols has TLSv1.1: expected"),
        ({"ssl_enabled_protocols": ()}, "ssl_enabled_protocols has no version"),
        ({"ssl_cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "ssl_cipher_suites has TLS_AES_128_GCM_SHA256 of TLS 1.3"),
    ],
)
def test_tls_settings_that_cannot_work_are_refused(config: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        config(bootstrap="b:1", security_protocol="SSL", **given)
    assert "wonderland" not in str(refused.value)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
async def test_client_with_a_file_that_cannot_be_used_is_refused_when_it_is_made(client: Any) -> None:
    with pytest.raises(ValueError, match=r"^ssl_truststore_location 'absent' cannot be read: No such file"):
        client("b:1", security_protocol="SSL", ssl_truststore_location="absent")


def test_setting_error_is_spelt_as_its_reader_knows_the_settings() -> None:
    error = SettingError("ssl_key_password", "of '/etc/ssl_key_password' has no effect without ssl_keystore_key='x'")
    kafkas = error.spelt(lambda name: name.replace("_", "."))
    assert kafkas == "ssl.key.password of '/etc/ssl_key_password' has no effect without ssl.keystore.key='x'"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
