"""One file per API, named like its file in ``protocol.messages``; ``all_handlers`` lists them."""

from typing import Any

from broker.dispatch import ApiHandler


def all_handlers() -> tuple[ApiHandler[Any], ...]:
    """Every API that this broker serves. ApiVersions is computed from it, so nothing else is ever advertised."""
    return ()
