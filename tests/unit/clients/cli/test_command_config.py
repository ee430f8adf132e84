"""``--command-config``: files of properties, with the names of Kafka and of librdkafka."""

from pathlib import Path

import click
import pytest

from oncelog.clients.cli.command_config import read_command_config
from oncelog.clients.security_config import SecurityConfig
from oncelog.protocol.sasl.login import OauthLogin
from tests.certificates import make_authority, trust_store_of_keytool

SECRET = "wonderland"
ROOT = make_authority("root")
OWN = ROOT.issue("own")


def read(directory: Path, *lines: str) -> SecurityConfig:
    """The settings of a file; a warning is an error."""
    file = directory / "client.properties"
    file.write_text("\n".join(lines))

    def warn(text: str) -> None:
        raise AssertionError(text)

    return read_command_config(str(file), warn)


def refused(directory: Path, *lines: str) -> str:
    with pytest.raises(click.BadParameter) as raised:
        read(directory, *lines)
    return raised.value.message


def test_file_with_kafkas_names_has_the_settings(tmp_path: Path) -> None:
    (tmp_path / "ca.p12").write_bytes(trust_store_of_keytool(ROOT, password=SECRET))
    (tmp_path / "own.p12").write_bytes(OWN.pkcs12(SECRET))
    config = read(
        tmp_path,
        "security.protocol=SASL_SSL",
        f"ssl.truststore.location={tmp_path / 'ca.p12'}",
        f"ssl.truststore.password={SECRET}",
        "ssl.truststore.type=PKCS12",
        f"ssl.keystore.location={tmp_path / 'own.p12'}",
        f"ssl.keystore.password={SECRET}",
        f"ssl.key.password={SECRET}",
        "ssl.endpoint.identification.algorithm=",
        "ssl.enabled.protocols=TLSv1.2, TLSv1.3",
        "sasl.mechanism=PLAIN",
        "sasl.username=alice",
        f"sasl.password={SECRET}",
    )
    assert config.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    context = config.make_tls_context()
    assert context is not None
    assert not context.check_hostname
    assert config.login is not None


@pytest.mark.parametrize(("value", "is_token"), [("true", True), ("False", False)])
def test_file_says_whether_its_user_is_a_delegation_token(tmp_path: Path, value: str, is_token: bool) -> None:
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=a", "sasl.password=b")
    config = read(tmp_path, *lines, f"sasl.tokenauth={value}")
    assert config.login is not None
    assert config.login.is_token is is_token
    assert "sasl.tokenauth must be true or false" in refused(tmp_path, *lines, "sasl.tokenauth=yes")


def test_file_with_the_names_of_librdkafka_has_the_settings(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(ROOT.certificate_pem)
    (tmp_path / "own.crt").write_bytes(OWN.chain_pem)
    (tmp_path / "own.key").write_bytes(OWN.key_pem(SECRET))
    config = read(
        tmp_path,
        "security.protocol=SSL",
        f"ssl.ca.location={tmp_path / 'ca.pem'}",
        f"ssl.certificate.location={tmp_path / 'own.crt'}",
        f"ssl.key.location={tmp_path / 'own.key'}",
        f"ssl.key.password={SECRET}",
        "ssl.endpoint.identification.algorithm=none",
    )
    assert config.ssl_truststore_location == str(tmp_path / "ca.pem")
    assert config.make_tls_context() is not None


def test_file_with_a_setting_that_cannot_work_is_refused_in_its_own_words(tmp_path: Path) -> None:
    ca, key = tmp_path / "ca.pem", tmp_path / "own.key"
    key.write_bytes(OWN.key_pem(SECRET))
    secured = "security.protocol=SSL"
    said = refused(tmp_path, secured, f"ssl.ca.location={ca}")
    assert said.endswith(f"/client.properties': ssl.ca.location '{ca}' cannot be read: No such file or directory")
    said = refused(tmp_path, secured, f"ssl.key.location={key}")
    assert said.endswith("ssl.keystore.certificate.chain is missing: ssl.key.location is given")
    said = refused(tmp_path, secured, f"ssl.key.location={ca}")
    assert f"ssl.key.location '{ca}' cannot be read" in said
    said = refused(tmp_path, f"ssl.key.password={SECRET}")
    assert said.endswith("ssl.key.password has no effect without security.protocol='SSL' or 'SASL_SSL'")
    said = refused(tmp_path, "security.protocol=TLS")
    assert said.endswith("security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not TLS")


JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
URL = "https://issuer.example/token"


@pytest.mark.parametrize(
    "lines",
    [
        (f"sasl.oauthbearer.client.credentials.client.id=app\nsasl.oauthbearer.client.credentials.client.secret={SECRET}"
         "\nsasl.oauthbearer.scope=kafka\nsasl.oauthbearer.extensions=pool=p"),
        (f"sasl.oauthbearer.client.id=app\nsasl.oauthbearer.client.secret={SECRET}\nsasl.oauthbearer.scope=kafka\n"
         "sasl.oauthbearer.extensions=pool=p"),
        f'sasl.jaas.config={JAAS} clientId="app" clientSecret="{SECRET}" scope="kafka" extension_pool="p";',
    ],
)  # fmt: skip
def test_file_with_a_token_endpoint_has_the_login_by_any_names(tmp_path: Path, lines: str) -> None:
    sasl = ("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER", f"sasl.oauthbearer.token.endpoint.url={URL}")
    login = read(tmp_path, *sasl, lines).login
    assert login == OauthLogin(
        token_endpoint_url=URL, client_id="app", client_secret=SECRET, scope="kafka", extensions=(("pool", "p"),)
    )
    assert SECRET not in repr(login)


def test_file_cannot_name_a_function_of_a_program(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nsasl.oauthbearer.token.provider=os.getcwd\n")
    warnings: list[str] = []
    read_command_config(str(file), warnings.append)
    assert warnings == [f"Warning: {file}: these have no effect: sasl.oauthbearer.token.provider"]


def test_file_with_a_setting_that_is_not_supported_warns(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.provider=SunJSSE\nsasl.kerberos.service.name=kafka\n")
    warnings: list[str] = []
    read_command_config(str(file), warnings.append)
    assert warnings == [f"Warning: {file}: these have no effect: ssl.provider, sasl.kerberos.service.name"]
