"""Settings of all tests: a property has no deadline, since a busy machine says nothing about the code; one that fails
prints what repeats it.

And there is one import name. The repository is on the path, so an import by the name of a folder would make second
copies of its modules, whose classes are not those of ``oncelog.broker``. It is refused.

And garbage is collected: a test that leaves the collector off would have all later tests of its process keep what they
drop. It fails. What has been imported and collected stays until the end, so it is taken out of the collector's sight:
the suite takes a quarter less processor time.

And a set has no order that two processes agree on: tests that are parametrized by one would be collected differently by
each worker of a parallel run, which then refuses to begin. So would tests whose ids have the address of an object.

And SIGINT is not ignored. A shell without job control has its background processes ignore it, and so do all that they
start: a test of Ctrl-C would wait for what never comes.
"""

import gc
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

FOLDERS: Final = frozenset({"broker", "clients", "coordinator", "protocol", "spark_connector"})
_YOUNG_OBJECTS: Final = 10_000
"""Allocations between two collections of the youngest."""


class BareNames(MetaPathFinder):
    """Refuses to import our packages by the names of their folders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in FOLDERS:
            raise ModuleNotFoundError(f"import oncelog.{fullname}, not {fullname}", name=fullname)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, BareNames())
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("untimed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse the parametrization of a test by a set."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        values = mark.args[1] if len(mark.args) > 1 else mark.kwargs["argvalues"]
        if isinstance(values, (set, frozenset)):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: parametrize by a list; a set has no fixed order")


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what lives as long as the process: 18,000 tests and what they import."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail a test that leaves the garbage collector off."""
    if not gc.isenabled():
        gc.enable()
        pytest.fail(f"{item.nodeid} leaves the garbage collector off")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse the id of a test that holds the address of an object."""
    for item in items:
        if " object at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address differs in each process; give the parameter an id")
