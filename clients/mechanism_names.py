"""The mechanisms of SASL that a broker has, as a message shows them.

A client reads them before it knows whom it is connected to: anything may stand in that list, of any length.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

_NAME: Final = re.compile(r"[A-Z0-9_-]{1,20}")
"""As RFC 4422 has it."""
_MOST: Final = 10


def shown_mechanisms(names: Iterable[str]) -> Sequence[str]:
    """Return the first of these names that are names of mechanisms."""
    return tuple(islice(filter(_NAME.fullmatch, names), _MOST))
