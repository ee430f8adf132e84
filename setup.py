"""What a build needs besides ``pyproject.toml``: symbolic links that are links, and nothing of an earlier build.

Setuptools puts all of ``build/lib`` into a wheel, so modules that a former build left there would come back.

Where links have become text files a build is refused: without an error it would make a hollow wheel. Git makes such a
checkout with ``core.symlinks=false``, and so does Python's ``zipfile`` when it unpacks a downloaded archive.
"""

import shutil
from pathlib import Path

from setuptools import setup

_LINKS = ("broker", "clients", "coordinator", "protocol", "spark_connector")

_here = Path(__file__).resolve().parent
_broken = [name for name in _LINKS if not (_here / "oncelog" / name / "__init__.py").is_file()]
if _broken:
    raise SystemExit(
        f"oncelog/{_broken[0]} is not a link to ../{_broken[0]}: this checkout was made without symbolic links. "
        "Run `git config core.symlinks true && rm -rf oncelog && git checkout -- oncelog`; unpack archives with tar."
    )

shutil.rmtree(_here / "build" / "lib", ignore_errors=True)
setup()
