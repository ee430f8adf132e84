"""The generated pages of the documentation say what the code says."""

from dataclasses import fields

import pytest

from oncelog import AdminConfig, ConsumerConfig, ProducerConfig
from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from tests.pages.table import DOCUMENTS, PAGES

HEADINGS = ("name", "type", "default", "meaning", "Kafka's name")


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_equals_what_the_code_says(name: str) -> None:
    is_current = (DOCUMENTS / name).read_text() == PAGES[name]()
    assert is_current, f"docs/{name} is stale. Run: make docs-pages"


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_page_of_client_settings_has_every_field_and_its_text(config: type) -> None:
    rows = PAGES["reference/client-settings.md"]().split("\n")
    assert [each.name for each in fields(config) if not any(row.startswith(f"| `{each.name}` |") for row in rows)] == []
    assert [row for row in rows if row.startswith("| `") and len(row.split(" | ")) < len(HEADINGS)] == []


def test_page_of_settings_has_every_key() -> None:
    text = PAGES["reference/settings.md"]()
    assert [key for key in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{key}`" not in text] == []
