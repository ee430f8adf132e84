"""What ``make`` says before it is busy for a while, and that it leaves alone what runs from its environment."""

import os
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["run", "cluster", "test", "spark-test"])
def test_target_says_that_it_installs_before_it_does(target: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "VENV=missing-environment", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    before, pip, _ = shown.partition("pip install")
    assert pip
    assert "Installing Oncelog" in before


@pytest.mark.parametrize("target", ["run", "cluster"])
def test_port_is_a_setting(target: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "PORT=9192", target], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--port 9192" in shown


def test_cluster_ends_with_make_when_that_is_terminated(tmp_path: Path) -> None:
    """``make`` passes SIGTERM on to the process that it started, and to none below that."""
    (tmp_path / ".runtime").write_bytes((ROOT / "pyproject.toml").read_bytes())
    program = tmp_path / "bin" / "oncelog"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho $$\nexec sleep 600\n")
    program.chmod(0o755)
    with subprocess.Popen(
        ["make", "--no-print-directory", f"VENV={tmp_path}", "cluster"],
        cwd=ROOT,
        env={**os.environ, "ONCELOG_ZOOKEEPER_JARS": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        cluster = int(process.stdout.readline())
        descriptor = os.pidfd_open(cluster)
        process.terminate()
        process.wait(60)
        has_ended = bool(select.select([descriptor], [], [], 0)[0])
        if not has_ended:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)
        assert has_ended


def test_late_frames_are_played_with_the_client_broker_and_seed_that_are_named() -> None:
    words = ["CLIENT=kafkajs", "BROKER=oncelog", "SEED=7", "FRAMES=10"]
    shown = subprocess.run(
        ["make", "--dry-run", *words, "late-frames"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "--seed 7 --frames 10 --client kafkajs --broker oncelog" in shown


@pytest.mark.parametrize("words", [["SHRINK=1"], ["SHRINK=1", "SEED=3", "CORPUS=1"]])
def test_shrinking_needs_the_history_that_is_to_be_shrunk(environment: Path, words: list[str]) -> None:
    (environment / ".dev").touch()
    done = subprocess.run(
        ["make", f"VENV={environment}", "simulate", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "which SEED names: make simulate SEED=writers:17 SHRINK=1" in done.stdout
    assert (environment / "calls").read_text() == ""


MAKEFILE = (ROOT / "Makefile").read_text()
RECORDING_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exec python3 "$@"
echo "$@" >> "${0%/bin/python}/calls"
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment into which Oncelog has been installed. Its Python notes what it is to install."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(RECORDING_PYTHON)
    python.chmod(0o755)
    (tmp_path / "calls").touch()
    (tmp_path / ".runtime").write_bytes((ROOT / "pyproject.toml").read_bytes())
    return tmp_path


def make(environment: Path, target: str) -> str:
    """Make one marker of an environment; return what was installed."""
    subprocess.run(["make", f"VENV={environment}", f"{environment}/{target}"], cwd=ROOT, check=True, timeout=60)
    return (environment / "calls").read_text()


@pytest.mark.parametrize("extra", ["dev", "spark"])
def test_marker_of_an_extra_does_not_install_oncelog_anew(environment: Path, extra: str) -> None:
    """While pip replaces an installation, programs that run from it cannot import it."""
    called = make(environment, f".{extra}")
    assert "--requirement" in called
    assert "--editable" not in called
    requirements = (environment / f"{extra}.txt").read_text().splitlines()
    assert any(line.startswith({"dev": "pytest>", "spark": "pyspark>"}[extra]) for line in requirements)


def test_oncelog_is_installed_anew_only_if_the_project_file_differs(environment: Path) -> None:
    os.utime(environment / ".runtime", (0, 0))
    assert make(environment, ".runtime") == ""
    (environment / ".runtime").write_text("of a former commit")
    os.utime(environment / ".runtime", (0, 0))
    assert "--editable ." in make(environment, ".runtime")


def test_help_has_every_target_with_its_text() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert {line.split()[0] for line in shown.splitlines()} == set(phony.split())
    assert all(len(line.split()) > 1 for line in shown.splitlines())


def test_clean_removes_what_pip_has_built() -> None:
    shown = subprocess.run(["make", "--dry-run", "clean"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert " build " in shown


@pytest.mark.parametrize("page", ["README.md", "docs/tutorials/cluster.md"])
def test_pages_that_use_makes_environment_install_extras_in_the_form_that_keeps_it(page: str) -> None:
    """An installation that is not editable replaces the checkout by a copy of it."""
    text = (ROOT / page).read_text()
    assert "make spark" in text
    assert re.findall(r"pip install (?!-e )[^`]*\.\[", text) == []
