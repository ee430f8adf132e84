"""The committed reference page is the one that the tables print."""

from pathlib import Path

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from oncelog.broker.tools.config_page import page

PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m oncelog.broker.tools.config_page > docs/configuration.md"


def test_every_key_is_on_it() -> None:
    text = page()
    assert [key for key in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{key}`" not in text] == []
