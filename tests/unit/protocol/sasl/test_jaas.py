"""Login modules in Java's syntax."""

import pytest

from oncelog.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, JaasError, parse_jaas
from oncelog.protocol.sasl.login import SaslLogin, parse_login


def test_login_module_with_users_is_parsed() -> None:
    module = parse_jaas(f'{PLAIN_MODULE} required\n  username="b" password="p;\\"=" user_alice=\'x y\' user_bob=z ;')
    assert module.name == PLAIN_MODULE
    assert module.options == {"username": "b", "password": 'p;"=', "user_alice": "x y", "user_bob": "z"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";', "is not known"),
        ("com.sun.security.auth.module.LdapLoginModule required;", "is not known"),
        ("", "lacks the class"),
        (f"{PLAIN_MODULE}", "lacks a control flag"),
        (f'{PLAIN_MODULE} username="b";', "no control flag"),
        (f'{PLAIN_MODULE} required username="secret"', "does not end in a semicolon"),
        (f'{PLAIN_MODULE} required username="secret', "quotation mark"),
        (f"{PLAIN_MODULE} required secret;", "option without a value"),
        (f"{PLAIN_MODULE} required =secret;", "without the name"),
        (f"{PLAIN_MODULE} required secret=;", "lacks the value"),
        (f"{PLAIN_MODULE} required; {SCRAM_MODULE} required;", "more than one"),
        (f"{PLAIN_MODULE} required " + "a=b " * 300_000 + ";", "longer than"),
    ],
)
def test_malformed_or_foreign_login_module_is_refused_without_its_values(text: str, why: str) -> None:
    with pytest.raises(JaasError, match=why) as raised:
        parse_jaas(text)
    assert "secret" not in str(raised.value)
    assert "ldap" not in str(raised.value)


def test_login_does_not_show_its_password() -> None:
    login = parse_login("SCRAM-SHA-256", f'{SCRAM_MODULE} required username="alice" password="wonderland";')
    assert login == SaslLogin(mechanism="SCRAM-SHA-256", username="alice", password="wonderland")
    assert "wonderland" not in f"{login!r}{login}"


@pytest.mark.parametrize(("value", "is_token"), [("true", True), ("TRUE", True), ("false", False)])
def test_login_says_whether_it_is_a_delegation_token(value: str, is_token: bool) -> None:
    text = f'{SCRAM_MODULE} required username="id" password="aG1hYw==" tokenauth="{value}";'
    login = parse_login("SCRAM-SHA-512", text)
    assert login == SaslLogin(mechanism="SCRAM-SHA-512", username="id", password="aG1hYw==", is_token=is_token)
    assert "aG1hYw" not in f"{login!r}{login}"


@pytest.mark.parametrize(
    ("mechanism", "text", "why"),
    [
        ("PLAIN", f'{PLAIN_MODULE} required username="a" password="b" tokenauth="true";', "tokenauth, for which one"),
        ("SCRAM-SHA-256", f'{SCRAM_MODULE} required username="a" password="b" tokenauth="yes";', "neither true nor"),
        ("PLAIN", f'{SCRAM_MODULE} required username="a" password="b";', "another login module than that of PLAIN"),
        ("PLAIN", f'{PLAIN_MODULE} required username="a";', "lacks the option password"),
        ("GSSAPI", f'{PLAIN_MODULE} required username="a" password="b";', "GSSAPI, which is not supported"),
    ],
)
def test_login_without_what_its_mechanism_needs_is_refused(mechanism: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_login(mechanism, text)
