"""Dataclasses that callers make: their fields are compared with their annotations when they are made.

A field that does not exist is a ``TypeError`` that names the one that was probably meant, by Kafka's name too.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, Final, TypeVar

from oncelog.clients.annotations import require_type

T = TypeVar("T")

NOT_RENAMED: Final[Mapping[str, str | None]] = {}


def checked_fields(kafka_names: Mapping[str, str | None] = NOT_RENAMED) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a dataclass, which makes its constructor check names and types of the arguments.

    ``kafka_names`` has Kafka's names of the fields that are called otherwise here, None for those that Kafka lacks.
    """
    meant = {kafkas.replace(".", "_"): ours for ours, kafkas in kafka_names.items() if kafkas}

    def decorate(kind: type[T]) -> type[T]:
        initialize = kind.__init__
        annotations = {each.name: each.type for each in fields(kind)}  # type: ignore[arg-type]
        positional = [each.name for each in fields(kind) if not each.kw_only]  # type: ignore[arg-type]

        @wraps(initialize)
        def __init__(self: T, *values: Any, **named: Any) -> None:
            if len(values) > len(positional):
                raise TypeError(f"{kind.__name__} takes its fields by name, such as {next(iter(annotations))}=…")
            for name, value in {**dict(zip(positional, values, strict=False)), **named}.items():
                if name not in annotations:
                    raise TypeError(_unknown(kind.__name__, name, annotations, meant))
                require_type(value, annotations[name], name, of=kind.__name__)
            initialize(self, *values, **named)

        kind.__init__ = __init__  # type: ignore[method-assign, assignment]
        return kind

    return decorate


def _unknown(of: str, name: str, names: Collection[str], meant: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    plain = name.replace(".", "_")
    near = [meant[plain]] if plain in meant else get_close_matches(plain, sorted(names), n=1)
    advice = f": did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(names))}"
    return f"{of} has no setting {name}{advice}"
