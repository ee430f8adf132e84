"""The page that ``make rolling-security`` follows: its steps are known, and a broker accepts the settings of each."""

from oncelog.broker.config.listeners import checked_listeners
from oncelog.broker.config.sources import load_config
from tests.rolling.how_to import Settings, read_how_to, with_passwords, with_places
from tests.rolling.security_journey import FOLLOWED, PREPARATION

PASSWORDS = {"admin": "a", "broker": "b"}


def test_sections_of_the_page_are_those_that_are_followed() -> None:
    assert list(read_how_to()) == [PREPARATION, *FOLLOWED, "Go back", "What remains"]


def test_settings_of_every_step_are_accepted_by_a_broker() -> None:
    settings = {"zookeeper.connect": "localhost:2181"}
    listeners = []
    for blocks in read_how_to().values():
        for block in blocks:
            if isinstance(block, Settings):
                values = {key: with_passwords(value, PASSWORDS) for key, value in block.values.items()}
                settings = {key: value for key, value in (settings | values).items() if key not in block.removed}
                loaded = load_config(overrides=[f"{key}={value}" for key, value in settings.items()], environment={})
                found = checked_listeners(loaded.config)
                assert not loaded.warnings
                listeners.append(([each.security_protocol for each in found.bound], found.inter_broker))
    both = ["PLAINTEXT", "SASL_SSL"]
    assert listeners == [(both, "PLAINTEXT"), (both, "SASL_SSL"), (both, "SASL_SSL"), (["SASL_SSL"], "SASL_SSL")]


def test_longer_places_are_replaced_before_shorter_ones() -> None:
    assert with_places("a.example:1 a.example", {"a.example": "b", "a.example:1": "b:2"}) == "b:2 b"
