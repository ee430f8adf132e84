"""The settings of authentication of producer, consumer and administration."""

from typing import Any

import pytest

from oncelog import AdminConfig, ConsumerConfig, ProducerConfig
from oncelog.protocol.sasl.login import SaslLogin

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
def test_login_without_settings_is_none(config: Any) -> None:
    assert config(bootstrap="b:1").login is None


@CONFIGS
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sasl_password": "wonderland"}, "sasl_password has no effect without security_protocol='SASL_PLAINTEXT'"),
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
    ],
)
def test_settings_that_make_no_login_are_refused(config: Any, given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        config(bootstrap="b:1", **given)
    assert "wonderland" not in str(refused.value)
