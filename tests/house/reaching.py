"""Where tests reach into private attributes of objects: ``x._y``, where ``x`` is neither ``self`` nor ``cls``.

Such a test breaks when a class changes inside. What it looks at is better shown by the class, or seen on the wire.
A chain of attributes counts once. Not counted are attributes that a class of the same file defines, such as a test's
own fake, and those of other libraries that have an underscore in their documented or only name.
"""

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

_OTHERS: Final = frozenset(
    {"_replace", "_asdict", "_fields", "_make", "_field_defaults", "_exit", "_log_destroy_pending", "_scheduled"}
    | {"_jvm", "_jdf", "_gateway", "_PARTITION_EOF", "_STATE", "_INVALID_DIFFERENT_RECORD", "_labelnames", "_json"}
)
_OWN: Final = frozenset({"self", "cls"})


def reaching_places(root: Path) -> Iterator[str]:
    """Yield ``path:line x._y`` for each use of a private attribute in the modules of tests."""
    for file in sorted((root / "tests").rglob("*.py")):
        tree = ast.parse(file.read_text())
        reached = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        own = _own_names(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_private(node, own) and not _goes_on(node, reached, own):
                yield f"{file.relative_to(root)}:{node.lineno} {ast.unparse(node)}"


def _is_private(node: ast.Attribute, own: Container[str]) -> bool:
    is_own = isinstance(node.value, ast.Name) and node.value.id in _OWN
    has_mark = node.attr.startswith("_") and not node.attr.startswith("__")
    return has_mark and not is_own and node.attr not in _OTHERS and node.attr not in own


def _goes_on(node: ast.Attribute, reached: Mapping[int, ast.Attribute], own: Container[str]) -> bool:
    """Return whether the chain of attributes reaches into another private one after this one."""
    following = reached.get(id(node))
    return following is not None and (_is_private(following, own) or _goes_on(following, reached, own))


def _own_names(tree: ast.Module) -> set[str]:
    """Return the private names that classes of a module define, by a method, a field or an assignment to ``self``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found.update(each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found.update(_target(each) for each in node.body if isinstance(each, ast.AnnAssign))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in _OWN:
                found.add(node.attr)
    return found


def _target(node: ast.AnnAssign) -> str:
    return node.target.id if isinstance(node.target, ast.Name) else ""
