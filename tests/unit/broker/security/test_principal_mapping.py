"""Rules that make users of subjects, as Kafka documents them."""

import time

import pytest

from oncelog.broker.config.settings import ConfigError
from oncelog.broker.security.principal_mapping import PrincipalMapping

SUBJECT = "CN=Alice.Smith,OU=clients,O=Acme,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", SUBJECT),
        ("", SUBJECT),
        (r"RULE:^CN=(.*?),OU=clients.*$/$1/", "Alice.Smith"),
        (r"RULE:^CN=(.*?),OU=clients.*$/$1/L", "alice.smith"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", "ALICE.SMITH@CLIENTS"),
        (r"RULE:^CN=(.*?),OU=servers.*$/$1/, DEFAULT", SUBJECT),
        (r"RULE:^CN=(.*?),OU=servers.*$/$1/,RULE:^CN=(\w+)\.(\w+),.*$/$2\/$1/", "Smith/Alice"),
        (r"RULE:.*C=(..)$/in \$$1/", "in $DE"),
        (r"RULE:CN=(\w+)/$1/", None),
        (r"RULE:^CN=(.*?),OU=servers.*$/$1/", None),
        ("RULE:CN=.*/everyone/", "everyone"),
    ],
)
def test_first_rule_that_matches_the_whole_subject_makes_the_user(rules: str, user: str | None) -> None:
    assert PrincipalMapping(rules).user_of(SUBJECT) == user


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("RULE:CN=(.*)/$1", "expected RULE:pattern/replacement/"),
        ("RULE:CN=(.*)/$1/X", "expected a comma between rules"),
        ("default", "expected RULE:pattern/replacement/"),
        ("RULE:CN=(.*/$1/", "RE2 does not read"),
        ("RULE:CN=(.*)/$2/", "a group that"),
        ("DEFAULT DEFAULT", "expected a comma between rules"),
    ],
)
def test_rules_that_are_malformed_are_refused(rules: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        PrincipalMapping(rules)


def test_subject_of_many_repetitions_takes_no_time() -> None:
    mapping = PrincipalMapping("RULE:^(a+)+$/$1/")
    begun = time.perf_counter()
    assert mapping.user_of("a" * 5_000 + "!") is None
    assert time.perf_counter() - begun < 5
