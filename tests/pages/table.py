"""The generated pages and the functions that make them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.pages import client_settings, command_line, metrics, settings, transaction_states
from tests.unit.coordinator.transaction.tables import page as transaction_tables

DOCUMENTS: Final = Path(__file__).resolve().parents[2] / "docs"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/client-settings.md": client_settings.page,
    "reference/command-line.md": command_line.page,
    "reference/metrics.md": metrics.page,
    "reference/settings.md": settings.page,
    "internals/transaction-states.md": transaction_states.page,
    "internals/transaction-tables.md": transaction_tables.page,
}
"""By path below ``docs/``."""
