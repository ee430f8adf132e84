"""The classes of this project that the public names of ``oncelog`` take, return, contain and raise."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from oncelog import Admin, Consumer, Producer
from oncelog.clients.admin.transaction_history import TransactionHistory
from oncelog.clients.cluster import Cluster

CLIENTS: Final = (Producer, Consumer, Admin)
OPAQUE: Final = frozenset({Cluster})
"""Classes that a program makes and hands on; their methods are those of the clients themselves."""
_QUOTED: Final = re.compile(r"``([A-Z]\w*[a-z]\w*)``")


def classes_behind(public: list[object]) -> set[type]:
    """Return the project's classes in the annotations of public names, and of the names found in this way."""
    found: set[type] = set()
    pending = [each for each in public if isinstance(each, type)]
    while pending:
        kind = pending.pop()
        if kind not in found:
            found.add(kind)
            pending += [each for each in _annotated(kind) if each not in found]
    return found


def names_in_docstrings(kind: type) -> set[str]:
    """Return the names of classes that the docstrings of a class and its public methods quote."""
    texts = [kind.__doc__, *(inspect.getdoc(member) for _, member in _members(kind))]
    return {name for text in texts if text for name in _QUOTED.findall(text)}


def _annotated(kind: type) -> Iterator[type]:
    """Yield the classes of the fields of a value, or of the arguments and results of an object's methods."""
    if kind in OPAQUE:
        return
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        annotations = list(get_type_hints(kind).values())
    else:
        annotations = [each for _, member in _members(kind) for each in _hints(member).values()]
    for annotation in annotations:
        yield from _classes(annotation)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines; of clients also how they are made."""
    for name, member in vars(kind).items():
        if name.startswith("_") and not (name == "__init__" and kind in CLIENTS):
            continue
        if isinstance(member, property):
            yield name, member.fget
        elif isinstance(member, classmethod | staticmethod):
            yield name, member.__func__
        elif inspect.isfunction(member):
            yield name, member


def _hints(member: Any) -> dict[str, Any]:
    function = inspect.unwrap(member)
    hints = get_type_hints(function, {**function.__globals__, "TransactionHistory": TransactionHistory})
    return {name: each for name, each in hints.items() if name != "settings"}


def _classes(annotation: Any) -> Iterator[type]:
    """Yield the project's classes in an annotation, those of its arguments included."""
    for kind in (annotation, get_origin(annotation)):
        if isinstance(kind, type) and kind.__module__.startswith("oncelog."):
            yield kind
    for argument in get_args(annotation):
        for each in argument if isinstance(argument, list) else [argument]:
            yield from _classes(each)
