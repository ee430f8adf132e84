"""Which versions of which APIs are advertised, against those that Apache Kafka 4.3 declares."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.dispatch.api_handler import ApiHandler
from oncelog.broker.handlers import all_handlers
from oncelog.protocol.api_keys import ApiKey

UNSTABLE = {ApiKey.INIT_PRODUCER_ID: 5}
"""APIs of which Kafka 4.3 declares a newest version that it does not enable, with the last that it does."""


@pytest.mark.parametrize("handler", all_handlers(clustered=True), ids=lambda handler: handler.name)
def test_handler_of_each_api_serves_the_newest_declared_version(handler: ApiHandler[Any]) -> None:
    """A message is declared with all versions of Kafka's definition, so a handler that stops below it is behind."""
    assert handler.versions.last == UNSTABLE.get(handler.api_key, handler.request_type.versions.last)
    assert handler.advertised.last == handler.versions.last


def test_apis_about_acls_are_served_without_an_authorizer() -> None:
    served = {handler.api_key for handler in all_handlers()}
    assert {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS} <= served


def test_page_of_compatibility_names_the_oldest_version_of_each_api() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "compatibility.md").read_text()
    section = page.partition("## Oldest request versions")[2].partition("\n## ")[0]
    named = {
        api: int(row[1])
        for row in ([cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line)
        if row[1].isdecimal()
        for api in row[0].split(", ")
    }
    assert named == {handler.name: handler.versions.first for handler in all_handlers() if handler.versions.first}
