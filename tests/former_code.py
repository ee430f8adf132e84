"""The code of a former commit, as a folder from which brokers run beside brokers of this version.

It runs from a temporary Git worktree, with this environment's interpreter and packages.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import REPOSITORY


def code_of(tree: Path) -> dict[str, str]:
    """Return the environment that makes ``python -m oncelog`` run the code of another tree."""
    return {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


def command_of(tree: Path, command: list[str]) -> list[str]:
    """Return a command of ours for another tree: before there was one import name, the module was ``broker``."""
    if (tree / "oncelog").is_dir():
        return command
    return ["broker" if word == "oncelog" else word for word in command]


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Yield a folder with the tree of a commit; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="oncelog-before-") as folder:
        tree = Path(folder, "tree")
        git = ["git", "-C", str(REPOSITORY), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
