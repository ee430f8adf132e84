"""The limits of connections that single listeners have."""

import pytest

from oncelog.broker.config.listener_limits import ListenerLimits, parse_listener_limits
from oncelog.broker.config.listeners import checked_listeners
from oncelog.broker.config.settings import INT32_MAX, ConfigError
from oncelog.broker.config.sources import load_config


def test_listener_has_its_own_limits_and_another_has_none() -> None:
    loaded = load_config(
        overrides=[
            "listener.name.external.max.connections=7",
            "listener.name.external.max.connection.creation.rate=3",
            "max.connection.creation.rate=9",
        ]
    )
    assert (loaded.warnings, loaded.remarks) == ((), load_config().remarks)
    assert loaded.config.max_connection_creation_rate == 9
    assert parse_listener_limits(loaded.config, ["EXTERNAL", "PLAINTEXT"]) == {
        "EXTERNAL": ListenerLimits(7, 3),
        "PLAINTEXT": ListenerLimits(INT32_MAX, INT32_MAX),
    }


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("listener.name.plaintext.max.connections=-1", "listener.name.plaintext.max.connections='-1' is not valid"),
        ("listener.name.plaintext.max.connection.creation.rate=0", "expected a whole number, at least 1"),
        ("listener.name.other.max.connections=5", "is for a listener other, which is none of listeners"),
    ],
)
def test_limit_that_makes_no_sense_is_refused_at_the_start(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_listeners(load_config(overrides=[setting]).config)
