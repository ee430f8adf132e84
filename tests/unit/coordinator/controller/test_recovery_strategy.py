"""Which strategy of an unclean recovery is in force for a topic."""

import pytest

from oncelog.coordinator.controller.recovery_strategy import RecoverySettings, RecoveryStrategy

NONE, BALANCED, LONGEST = RecoveryStrategy.NONE, RecoveryStrategy.BALANCED, RecoveryStrategy.LONGEST_LOG
STRATEGY, ENABLE = "unclean.recovery.strategy", "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("brokers", "topic", "strategy"),
    [
        (RecoverySettings(), {}, BALANCED),
        (RecoverySettings(unclean_election=True), {}, LONGEST),
        (RecoverySettings(NONE, unclean_election=True), {}, NONE),
        (RecoverySettings(), {STRATEGY: "longest_log"}, LONGEST),
        (RecoverySettings(LONGEST), {STRATEGY: "none", ENABLE: "true"}, NONE),
        (RecoverySettings(NONE), {ENABLE: "true"}, LONGEST),
        (RecoverySettings(NONE), {ENABLE: "false"}, NONE),
        (RecoverySettings(LONGEST), {ENABLE: "false"}, BALANCED),
        (RecoverySettings(unclean_election=True), {ENABLE: "False"}, BALANCED),
        (RecoverySettings(LONGEST), {STRATEGY: "other", ENABLE: "perhaps"}, LONGEST),
    ],
)
def test_strategy_of_topic_goes_before_that_of_brokers_and_before_the_older_setting(
    brokers: RecoverySettings, topic: dict[str, str], strategy: RecoveryStrategy
) -> None:
    assert brokers.strategy_of(topic) is strategy


@pytest.mark.parametrize("strategy", list(RecoveryStrategy))
def test_unclean_election_without_eligible_replicas_is_the_older_setting_alone(strategy: RecoveryStrategy) -> None:
    assert not RecoverySettings(strategy).allows_unclean_election({STRATEGY: "longest_log"})
    assert RecoverySettings(strategy, unclean_election=True).allows_unclean_election({})
    assert not RecoverySettings(strategy, unclean_election=True).allows_unclean_election({ENABLE: "false"})
