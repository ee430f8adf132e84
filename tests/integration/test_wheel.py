"""The wheel holds one import name, so a user's own modules may be called what they like."""

import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import LIMIT_SECONDS, REPOSITORY, BrokerProcess
from tests.wheel import FOLDERS, build_wheel, copy_sources, install_wheel, make_users_project, run_pip

SECONDS = LIMIT_SECONDS
MODULES = {path.relative_to(REPOSITORY).as_posix() for name in FOLDERS for path in (REPOSITORY / name).rglob("*.py")}


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that has the wheel."""
    return install_wheel(wheel, tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_users_project(tmp_path_factory.mktemp("project"))


class Installed(BrokerProcess):
    """``oncelog serve`` of an environment, in a user's folder that is first on the path."""

    def __init__(self, directory: Path, programs: Path, project: Path) -> None:
        super().__init__(directory)
        self.programs = programs
        self.project = project

    def command(self) -> list[str]:
        return [str(self.programs / "oncelog"), "serve", "--port", "0", "--data-dir", str(self.directory / "data")]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": str(self.project)}

    def start(self, *, seconds: float = SECONDS) -> None:
        super().start(seconds=seconds)
        self.address = re.findall(r" at (\S+), data in", (self.directory / "stdout.log").read_text())[-1]

    def run(self, *command: str) -> str:
        """Run a command in the user's folder; return what it printed."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(programs: Path, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    process = Installed(tmp_path_factory.mktemp("broker"), programs, project)
    process.start()
    yield process
    process.stop()


def test_wheel_top_level_is_oncelog_and_what_spark_looks_for(wheel: Path) -> None:
    top = {name.split("/")[0] for name in contents(wheel)}
    assert {name for name in top if not name.endswith(".dist-info")} == {"oncelog", "pyspark_oncelog"}


def test_wheel_has_every_module_once(wheel: Path) -> None:
    ours = {name for name in contents(wheel) if name.endswith(".py") and name.startswith("oncelog/")}
    assert ours == {f"oncelog/{name}" for name in {*MODULES, "__init__.py", "__main__.py"}}
    assert {"oncelog/py.typed", "oncelog/clients/py.typed"} <= contents(wheel)


def test_image_is_built_from_a_wheel_with_every_module(tmp_path: Path) -> None:
    """From what the Dockerfile copies, of what ``.dockerignore`` lets through."""
    stage = (REPOSITORY / "Dockerfile").read_text().partition("RUN")[0]
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", stage, re.MULTILINE) for name in line.split()]
    admitted = set(re.findall(r"^!(\S+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE))
    assert set(copied) == admitted
    modules = {
        name
        for name in contents(build_wheel(tmp_path, copy_sources(tmp_path / "sources", copied)))
        if name.endswith(".py")
    }
    assert modules == {f"oncelog/{name}" for name in {*MODULES, "__init__.py", "__main__.py"}}


def test_wheel_has_nothing_of_a_former_build(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    stale = sources / "build" / "lib" / "broker" / "server.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    assert not {name for name in contents(build_wheel(tmp_path, sources)) if name.startswith("broker/")}


def test_build_of_a_checkout_without_symbolic_links_is_refused(tmp_path: Path) -> None:
    """Otherwise it would make a wheel that is hollow."""
    sources = copy_sources(tmp_path / "sources")
    link = sources / "oncelog" / "clients"
    link.unlink()
    link.write_text("../clients")
    done = run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, sources)
    assert done.returncode != 0
    assert "oncelog/clients is not a link to ../clients: this checkout was made without symbolic links" in done.stderr


@pytest.mark.parametrize("start", [["oncelog"], ["python", "-m", "oncelog"]], ids=["program", "module"])
def test_commands_work_beside_a_users_modules(installed: Installed, start: list[str]) -> None:
    command = [str(installed.programs / start[0]), *start[1:]]
    topic = f"topic-{len(start)}"
    installed.run(*command, "topic", "create", topic, "--bootstrap", installed.address)
    assert topic in installed.run(*command, "topic", "list", "--bootstrap", installed.address).split()


def test_client_works_beside_a_users_modules(installed: Installed) -> None:
    program = (
        "import asyncio, os, sys\n"
        "import tests, broker, clients, coordinator, protocol, spark_connector\n"
        "from oncelog import Producer\n"
        "async def main():\n"
        "    async with Producer(sys.argv[1]) as producer:\n"
        "        print((await (await producer.send('orders', b'42 apples'))).offset)\n"
        "asyncio.run(main())\n"
        "print(broker.WHOSE, protocol.WHOSE, clients.WHOSE, sep=', ')\n"
    )
    said = installed.run(str(installed.programs / "python"), "-c", program, installed.address)
    assert said.splitlines() == ["0", "mine: broker.py, mine: protocol.py, mine: clients/__init__.py"]


def test_installed_package_is_the_wheels(installed: Installed) -> None:
    program = "import oncelog.broker; print(oncelog.broker.__file__)"
    said = installed.run(str(installed.programs / "python"), "-c", program)
    assert Path(said.strip()).is_relative_to(installed.programs.parent)
    assert os.path.commonpath([said.strip(), REPOSITORY]) != str(REPOSITORY)
