"""The generated pages of the documentation say what the code says."""

import pytest

from oncelog.broker.config.broker_config import BROKER_SETTINGS
from oncelog.broker.config.topic_config import TOPIC_SETTINGS
from tests.pages.table import DOCUMENTS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_equals_what_the_code_says(name: str) -> None:
    is_current = (DOCUMENTS / name).read_text() == PAGES[name]()
    assert is_current, f"docs/{name} is stale. Run: make docs-pages"


def test_page_of_settings_has_every_key() -> None:
    text = PAGES["reference/settings.md"]()
    assert [key for key in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if f"`{key}`" not in text] == []
