"""The brokers' login to ZooKeeper, in Java's syntax."""

import pytest

from oncelog.protocol.sasl.digest_login import DIGEST_MODULE, DigestLogin, parse_digest_login
from oncelog.protocol.sasl.jaas import KERBEROS_MODULE, PLAIN_MODULE, JaasError, parse_jaas


def test_login_is_parsed_and_its_text_has_no_password() -> None:
    login = parse_digest_login(f'{DIGEST_MODULE} required username="kafka" password="a\\"secret";')
    assert login == DigestLogin(username="kafka", password='a"secret')
    assert "secret" not in f"{login!r}{login}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'{KERBEROS_MODULE} required username="kafka" password="secret";', f"expected {DIGEST_MODULE}$"),
        (f'{PLAIN_MODULE} required username="kafka" password="secret";', f"expected {DIGEST_MODULE}$"),
        (f'{DIGEST_MODULE} required username="secret";', "lacks the option password"),
        (f'{DIGEST_MODULE} required user_kafka="secret";', "lacks the option username"),
        (f'{DIGEST_MODULE} required username="kafka" password="";', "lacks the option password"),
        (f'{DIGEST_MODULE} required username="kafka" password="secretä";', "other characters than printable"),
        (f'{DIGEST_MODULE} required username="kafka" password="secret\n";', "other characters than printable"),
        (f'Client {{ {DIGEST_MODULE} required username="kafka" password="secret"; }};', "not known"),
        (f'{DIGEST_MODULE} required username="kafka" password="secret"', "does not end in a semicolon"),
    ],
)
def test_login_that_cannot_work_is_refused_without_its_values(text: str, why: str) -> None:
    with pytest.raises(JaasError, match=why) as refused:
        parse_digest_login(text)
    assert "secret" not in str(refused.value)


def test_login_module_of_zookeeper_is_none_of_kafkas() -> None:
    with pytest.raises(JaasError, match="not known"):
        parse_jaas(f'{DIGEST_MODULE} required username="a" password="b";')
