"""What ``make`` says before it is busy for a while."""

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
