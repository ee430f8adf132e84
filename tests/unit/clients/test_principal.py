"""Who a client is to brokers, from its settings."""

import pytest

from oncelog.clients.principal import principal_of
from oncelog.clients.security_config import SecurityConfig
from tests.certificates import make_authority

ROOT = make_authority("root")
ALICE = ROOT.issue("alice")
TRUSTED = ROOT.certificate_pem.decode()


@pytest.mark.parametrize(
    ("security", "name", "description"),
    [
        (SecurityConfig(), "User:ANONYMOUS", "User:ANONYMOUS"),
        (
            SecurityConfig(security_protocol="SSL", ssl_truststore_certificates=TRUSTED),
            "User:ANONYMOUS",
            "User:ANONYMOUS",
        ),
        (
            SecurityConfig(
                security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="bob", sasl_password="secret"
            ),
            "User:bob",
            "User:bob",
        ),
        (
            SecurityConfig(
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_username="token-id",
                sasl_password="hmac",
                sasl_tokenauth=True,
            ),
            None,
            "the owner of the delegation token token-id",
        ),
        (
            SecurityConfig(
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url="file:///token",
            ),
            None,
            "the user of the token",
        ),
    ],
)
def test_principal_of_a_client_without_a_certificate_is_its_login(
    security: SecurityConfig, name: str | None, description: str
) -> None:
    principal = principal_of(security)
    assert (principal.name, principal.description, principal.caveat) == (name, description, "")


def test_principal_of_a_certificate_is_its_subject_unless_a_rule_changes_it() -> None:
    security = SecurityConfig(
        security_protocol="SSL",
        ssl_truststore_certificates=TRUSTED,
        ssl_keystore_key=ALICE.key_pem().decode(),
        ssl_keystore_certificate_chain=ALICE.chain_pem.decode(),
    )
    principal = principal_of(security)
    assert principal.name == "User:CN=alice"
    assert "ssl.principal.mapping.rules" in principal.caveat


def test_login_counts_more_than_a_certificate() -> None:
    security = SecurityConfig(
        security_protocol="SASL_SSL",
        ssl_truststore_certificates=TRUSTED,
        ssl_keystore_key=ALICE.key_pem().decode(),
        ssl_keystore_certificate_chain=ALICE.chain_pem.decode(),
        sasl_mechanism="PLAIN",
        sasl_username="bob",
        sasl_password="secret",
    )
    assert principal_of(security).name == "User:bob"
