"""The dashboard and the alert rules of ``deploy/``, as far as tests read them."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.processes import REPOSITORY

_METRIC: Final = re.compile(r"\b(?:kafka|oncelog|process)_[a-z0-9_]+\b")
_RULE: Final = re.compile(r"^ +expr: (.*)$", re.MULTILINE)


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((REPOSITORY / "deploy" / "grafana-dashboard.json").read_text())
    return loaded


def rules() -> list[str]:
    """Return the expressions of the alerts."""
    return _RULE.findall((REPOSITORY / "deploy" / "prometheus-rules.yml").read_text())


def panel_queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def queried_metrics() -> set[str]:
    """Return every metric that the dashboard or a rule names."""
    variables = [each["definition"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    texts = [*panel_queries(), *variables, *rules()]
    return {name for text in texts for name in _METRIC.findall(text)}
