"""The wheel, and a Python into which it is installed: what users have, beside the checkout that tests run from."""

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.processes import REPOSITORY

FOLDERS: Final = ("broker", "clients", "coordinator", "protocol", "spark_connector")
SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "oncelog", *FOLDERS, "pyspark_oncelog")
USERS_MODULES: Final = (
    "broker.py",
    "protocol.py",
    "coordinator.py",
    "spark_connector.py",
    "tests.py",
    "clients/__init__.py",
)
_BUILD: Final = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
_SECONDS: Final = 300


def copy_sources(directory: Path, names: Iterable[str] = SOURCES) -> Path:
    """Copy what the wheel is built from, with links as links: a build in the repository may hold modules long gone."""
    directory.mkdir(parents=True)
    for name in names:
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, directory / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, directory)
    return directory


def run_pip(*words: "str | Path") -> "subprocess.CompletedProcess[str]":
    """Run pip and return how it ended."""
    command = [sys.executable, "-m", "pip", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)


def build_wheel(directory: Path, sources: Path | None = None) -> Path:
    """Build the wheel in ``directory``, from a copy of the sources unless they are given, and return its path."""
    sources = sources or copy_sources(directory / "sources")
    done = run_pip("wheel", *_BUILD, "--wheel-dir", directory / "wheels", sources)
    assert done.returncode == 0, done.stderr
    (wheel,) = (directory / "wheels").iterdir()
    return wheel


def install_wheel(wheel: Path, directory: Path) -> Path:
    """Install a wheel into a new environment and return the folder of its programs.

    It finds our dependencies where this Python has them, and our packages only in the wheel: an editable installation
    is a ``.pth`` file, which counts in an environment's own ``site-packages`` alone.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], timeout=_SECONDS, check=True)
    (packages,) = (directory / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = directory / "bin" / "python"
    done = run_pip("--python", python, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel)
    assert done.returncode == 0, done.stderr
    return python.parent


def make_users_project(directory: Path) -> Path:
    """Fill a user's folder with modules that are called like folders of ours."""
    for name in USERS_MODULES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"WHOSE = 'mine: {name}'\n")
    return directory
