"""Settings of all tests: a property has no deadline, since a busy machine says nothing about the code; one that fails
prints what repeats it.

And there is one import name. The repository is on the path, so an import by the name of a folder would make second
copies of its modules, whose classes are not those of ``oncelog.broker``. It is refused.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

from hypothesis import HealthCheck, settings

FOLDERS: Final = frozenset({"broker", "clients", "coordinator", "protocol", "spark_connector"})


class BareNames(MetaPathFinder):
    """Refuses to import our packages by the names of their folders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in FOLDERS:
            raise ModuleNotFoundError(f"import oncelog.{fullname}, not {fullname}", name=fullname)


sys.meta_path.insert(0, BareNames())
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("untimed")
