"""Histories of three replicas: whatever happens, nothing acknowledged is lost and the replicas agree."""

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.broker.storage.log_config import LogConfig
from tests.simulation.replication_history import Step, run_history

SEEDS = int(os.environ.get("ONCELOG_REPLICATION_SEEDS", "40"))
CHUNKS = 4
WEIGHTS = {
    Step.APPEND: 8,
    Step.APPEND_LOCAL: 4,
    Step.ELECT: 3,
    Step.CRASH: 2,
    Step.RESTART: 3,
    Step.ISOLATE: 1,
    Step.HEAL: 2,
    Step.SLOW_CONTROLLER: 1,
    Step.FALLING_CONTROLLER: 1,
    Step.FAST_CONTROLLER: 2,
    Step.DELETE: 1,
    Step.PASS_LITTLE: 10,
    Step.PASS_MUCH: 3,
}


def steps_of(seed: int) -> list[Step]:
    rng = random.Random(seed)
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=rng.randrange(20, 120))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_histories_lose_nothing_acknowledged_and_the_replicas_agree(chunk: int) -> None:
    """B49, B55, B57, B60, B82"""
    for seed in range(chunk, SEEDS, CHUNKS):
        try:
            run_history(steps_of(seed), seed)
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("chunk", range(2))
def test_power_loss_with_flush_each_loses_nothing_acknowledged(chunk: int) -> None:
    for seed in range(chunk, SEEDS // 4, 2):
        try:
            run_history(steps_of(seed), seed, crash_kind="power", log_config=LogConfig(flush_interval_messages=1))
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise


@given(steps=st.lists(st.sampled_from(list(Step)), max_size=40), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_short_history_of_any_steps_loses_nothing_acknowledged(steps: list[Step], seed: int) -> None:
    """B49, B60: the same, where a failure shrinks to the fewest steps."""
    run_history(steps, seed)
