"""The operator who follows the page: a directory with certificates and passwords, and a shell for its commands."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.processes import child_environment
from tests.rolling.how_to import Commands, with_places
from tests.rolling.loaded_cluster import LegFailed

_SECONDS: Final = 120
_EXPORT: Final = "export "


class Operator:
    """Runs commands; variables that one block exports are there in the following ones."""

    def __init__(self, directory: Path, places: Mapping[str, str]) -> None:
        """``places``: what is to be put in place of the page's hosts, ports and directories."""
        self._directory = directory
        self._places = places
        self._exports: list[str] = []
        directory.mkdir(parents=True)

    @property
    def authority(self) -> str:
        """The file of the certificate that signed those of the brokers."""
        return str(self._directory / "tls" / "ca.pem")

    def run(self, commands: Commands) -> str:
        """Run a block of the page, and return what it printed. Raises ``LegFailed`` at the first command that fails."""
        text = with_places(commands.text, self._places)
        environment = child_environment()
        environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
        script = "\n".join(("set -e", *self._exports, text))
        try:
            done = subprocess.run(
                ["sh", "-c", script],
                cwd=self._directory,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LegFailed(f"not done within {_SECONDS} s:\n{text}") from None
        if done.returncode != 0:
            raise LegFailed(f"exit code {done.returncode}:\n{text}\n{done.stdout}{done.stderr}")
        self._exports += [line for line in text.splitlines() if line.startswith(_EXPORT)]
        return done.stdout

    def add_user(self, name: str, password: str) -> None:
        """Add a user of SCRAM. Raises ``LegFailed``."""
        self.write_password(name, password)
        self.run(Commands(f"oncelog user add {name} --password-file {name}.password"))

    def write_password(self, name: str, password: str) -> None:
        """Write the file that holds a user's password."""
        (self._directory / f"{name}.password").write_text(f"{password}\n")

    def password(self, name: str) -> str:
        """Return the password of a user, from its file."""
        return (self._directory / f"{name}.password").read_text().strip()

    @property
    def passwords(self) -> Mapping[str, str]:
        """The passwords of all users that have a file."""
        return {path.stem: self.password(path.stem) for path in self._directory.glob("*.password")}
