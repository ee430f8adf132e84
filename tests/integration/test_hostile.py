"""A slice of ``make hostile``: every attack in a small size. How long the loop pauses is for the whole to say."""

from pathlib import Path

from tests.hostile import abuse
from tests.hostile.__main__ import MOST_GROWTH_MIB, attack_defaults, attack_frames
from tests.hostile.abuse_stage import AbuseStage
from tests.hostile.attacks import ATTACKS, SMALL
from tests.hostile.frames import FRAME_SETTINGS
from tests.hostile.stage import Measured, Stage

FRAMES = 1_500
SEED = 2


def test_malformed_frames_beside_ordinary_clients_do_no_harm(tmp_path: Path) -> None:
    measured: list[Measured] = []
    with Stage(tmp_path, FRAME_SETTINGS) as stage:
        attack_frames(stage, FRAMES, SEED, measured.append)
        stage.finish()
    assert stage.problems == []
    assert sum(attack.inputs for attack in measured) == FRAMES
    assert stage.bystander["produced"] > 0
    assert stage.bystander["commits"] > 0


def test_attacks_beside_ordinary_clients_do_no_harm(tmp_path: Path) -> None:
    measured: list[Measured] = []
    with Stage(tmp_path, ()) as stage:
        attack_defaults(stage, SMALL, SEED, measured.append)
        stage.finish()
    assert stage.problems == []
    assert [attack.name for attack in measured[1:]] == [name for name, _ in ATTACKS]
    assert {attack.name: attack.growth_mib for attack in measured if attack.growth_mib > MOST_GROWTH_MIB} == {}


def test_abuse_of_a_broker_with_authentication_does_no_harm(tmp_path: Path) -> None:
    with AbuseStage(tmp_path, abuse.SMALL, quiet_seconds=0.5) as stage:
        measured = stage.measure_all()
    assert stage.problems == []
    assert [each.name for each in measured] == [name for name, _ in abuse.ABUSES]
    assert {each.name: each.growth_mib for each in measured if each.growth_mib > MOST_GROWTH_MIB} == {}
