"""Settings that a configuration does not have, and those that were probably meant."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")


def naming_unknown(**ours: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a dataclass of settings: a setting that it lacks is a ``TypeError`` that names a near one.

    ``ours`` has Kafka's names of settings that are called otherwise here.
    """

    def decorate(settings: type[T]) -> type[T]:
        initialize = settings.__init__
        names = frozenset(each.name for each in fields(settings))  # type: ignore[arg-type]

        @wraps(initialize)
        def __init__(self: T, *values: Any, **named: Any) -> None:
            unknown = [name for name in named if name not in names]
            if unknown:
                raise TypeError(_unknown(settings.__name__, unknown[0], names, ours))
            initialize(self, *values, **named)

        settings.__init__ = __init__  # type: ignore[method-assign, assignment]
        return settings

    return decorate


def _unknown(of: str, name: str, names: Collection[str], ours: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    plain = name.replace(".", "_")
    near = [ours[plain]] if plain in ours else get_close_matches(plain, sorted(names), n=1)
    meant = f": did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(names))}"
    return f"{of} has no setting {name}{meant}"
