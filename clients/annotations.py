"""Values compared with type annotations: those of settings, and of the parameters of a call. Pure.

Not every program is checked by a type checker. A value of another type must fail where it is passed, by the name of
its parameter, and not later in a codec or a task. The annotations are the only source of what is expected.
Messages name types and positions, never a value: it may be a payload.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

_WORDS: Final[Mapping[Any, str]] = {None: "None", NoneType: "None", float: "a number", Callable: "a function"}


def require_type(value: object, annotation: Any, name: str, of: str = "") -> None:
    """Raise ``TypeError`` unless a value is of an annotated type.

    ``name`` is that of its parameter, and ``of`` what has this parameter. Items of collections are compared too, except
    those of iterators, which can be read only once.
    """
    found = _mismatch(value, annotation, name)
    if found is not None:
        raise TypeError(f"{of}: {found}" if of else found)


def wrong_type(value: object, expected: str, name: str) -> TypeError:
    """Return the error for a value of another type than expected."""
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def describe(annotation: Any) -> str:
    """Return an annotation in words: ``str or None``, ``a collection of NewTopic``."""
    return " or ".join(dict.fromkeys(_kinds(annotation)))


def _kinds(annotation: Any) -> Iterator[str]:
    """Yield the types that an annotation allows, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for each in arguments:
            yield from _kinds(each)
    elif origin is Literal:
        yield from (type(choice).__name__ for choice in arguments)
    elif _is_mapping(origin):
        yield f"a mapping of {describe(arguments[0])} to {describe(arguments[1])}"
    elif _is_collection(origin):
        yield f"a collection of {describe(arguments[0])}"
    else:
        kind = origin or annotation
        yield _WORDS.get(kind, str(getattr(kind, "__name__", kind)))


def _mismatch(value: object, annotation: Any, name: str) -> str | None:
    """Return what is wrong with a value, None if it is of the annotated type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _mismatch_of_all(value, annotation, name)
    if _is_mapping(origin) and isinstance(value, Mapping):
        return _mismatch_of_items(value, arguments[0], arguments[1], name)
    if _is_collection(origin):
        return _mismatch_of_elements(value, annotation, name)
    return None if _is_instance(value, annotation) else str(wrong_type(value, describe(annotation), name))


def _mismatch_of_all(value: object, union: Any, name: str) -> str | None:
    """Return what is wrong with a value of none of several types; in detail if it is meant to be of one of them."""
    found = {describe(each): _mismatch(value, each, name) for each in get_args(union)}
    if None in found.values():
        return None
    detailed = (text for each, text in found.items() if text != str(wrong_type(value, each, name)))
    return next(detailed, str(wrong_type(value, describe(union), name)))


def _mismatch_of_items(mapping: Mapping[Any, Any], key_type: Any, value_type: Any, name: str) -> str | None:
    for key, value in mapping.items():
        found = _mismatch(key, key_type, f"a key of {name}") or _mismatch(value, value_type, f"{name}[{key}]")
        if found is not None:
            return found
    return None


def _mismatch_of_elements(value: object, annotation: Any, name: str) -> str | None:
    element = get_args(annotation)[0]
    if isinstance(value, str | bytes) or _is_one(value, element):
        return f"{wrong_type(value, describe(annotation), name)}: put it into a list"
    if not isinstance(value, Iterable):
        return str(wrong_type(value, describe(annotation), name))
    if not isinstance(value, Collection):
        return None
    found = (_mismatch(each, element, f"{name}[{index}]") for index, each in enumerate(value))
    return next((each for each in found if each is not None), None)


def _is_one(value: object, element: Any) -> bool:
    """Return whether a value is an element instead of a collection of them; a ``TopicPartition`` is a tuple, too."""
    return isinstance(element, type) and get_origin(element) is None and isinstance(value, element)


def _is_instance(value: object, annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return type(value) in map(type, get_args(annotation))
    if origin is Callable:
        return callable(value)
    if annotation in (None, NoneType):
        return value is None
    if annotation is int:
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(annotation, TypeVar) or annotation is Any:
        return True
    kind = origin or annotation
    return isinstance(value, kind) if isinstance(kind, type) else True


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_collection(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)
