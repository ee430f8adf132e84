"""A product of a few modules, from their texts."""

import ast

from tests.house.sources import Source


def parsed(path: str, text: str) -> Source:
    """Return the module at a path of the repository."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return Source(name, path, text, ast.parse(text))


def product(**modules: str) -> list[Source]:
    """Return modules whose paths are given with two underscores for each slash."""
    return [parsed(f"{name.replace('__', '/')}.py", text) for name, text in modules.items()]
