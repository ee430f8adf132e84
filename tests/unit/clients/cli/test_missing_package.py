"""What the command line says where a package that Oncelog needs is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.clients.cli.missing_package import missing_package_explained


def test_missing_module_of_ours_is_a_defect_and_raised() -> None:
    with pytest.raises(ModuleNotFoundError), missing_package_explained():
        raise ModuleNotFoundError("no module", name="oncelog.broker.nothing")


@pytest.mark.parametrize(("package", "words"), [("crc32c", ["serve", "--port", "0"]), ("click", ["--version"])])
def test_command_without_a_package_prints_one_line_with_the_remedy(
    tmp_path: Path, package: str, words: list[str]
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('no module', name={package!r})")
    done = subprocess.run(
        [sys.executable, "-m", "oncelog", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: the package {package} is missing in ")
    assert "make .venv/.runtime" in line
