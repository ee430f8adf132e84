"""Which setting makes the longest known log lead soon, where it is set, and what undoes it."""

import pytest

from oncelog.clients.admin.topic_pages import RecoveryDescription
from oncelog.clients.cli.election_settings import ElectionSettings, SettingInForce, election_settings, setting_in_force
from oncelog.clients.cli.waiting_partitions import Waiting, waiting_sentences
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

STRATEGY = "unclean.recovery.strategy"
UNCLEAN = "unclean.leader.election.enable"
LONGEST = RecoveryDescription(strategy="longest_log", waits_for=(3,), elects=1, decides_at_ms=None, log_ends={})


def entry(name: str, value: str, source: ConfigSource) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(name=name, value=value, config_source=source)


@pytest.mark.parametrize(
    ("strategy", "unclean", "key", "undo"),
    [
        (
            ("longest_log", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ("true", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            STRATEGY,
            f"oncelog topic alter-config a b --delete {STRATEGY}",
        ),
        (
            ("balanced", ConfigSource.DEFAULT_CONFIG),
            ("true", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            UNCLEAN,
            f"oncelog config alter broker --default --delete {UNCLEAN}",
        ),
        (
            ("longest_log", ConfigSource.STATIC_BROKER_CONFIG),
            ("true", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            UNCLEAN,
            f"oncelog topic alter-config a b --delete {UNCLEAN}",
        ),
        (
            ("longest_log", ConfigSource.DYNAMIC_BROKER_CONFIG),
            ("false", ConfigSource.DEFAULT_CONFIG),
            STRATEGY,
            f"oncelog config alter broker 7 --delete {STRATEGY}",
        ),
        (
            ("balanced", ConfigSource.DEFAULT_CONFIG),
            ("true", ConfigSource.STATIC_BROKER_CONFIG),
            UNCLEAN,
            f"start the brokers without {UNCLEAN} (--set, server.properties, environment)",
        ),
    ],
)
def test_setting_in_force_is_undone_where_it_is_set(
    strategy: tuple[str, ConfigSource], unclean: tuple[str, ConfigSource], key: str, undo: str
) -> None:
    found = setting_in_force([entry(STRATEGY, *strategy), entry(UNCLEAN, *unclean)], 7)
    assert found is not None
    assert (found.key, found.undo(["a", "b"])) == (key, undo)


def test_settings_that_let_no_longest_log_lead_are_not_in_force() -> None:
    default = ConfigSource.DEFAULT_CONFIG
    assert setting_in_force([entry(STRATEGY, "balanced", default), entry(UNCLEAN, "false", default)], 7) is None


def test_waiting_partitions_name_the_setting_that_is_in_force_and_its_place() -> None:
    in_force = SettingInForce(UNCLEAN, "true", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, 7)
    (text,) = waiting_sentences([Waiting("a-0", (3,), LONGEST)], ElectionSettings(in_force={"a": in_force}))
    assert text.splitlines()[-2:] == [
        f"  not to wait: {UNCLEAN}=true of all brokers holds already: the longest log that is known leads soon; "
        "afterwards",
        f"               oncelog config alter broker --default --delete {UNCLEAN}",
    ]


@in_virtual_time
async def test_settings_are_read_of_topics_under_longest_log_only() -> None:
    own = entry(UNCLEAN, "true", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    result = DescribeConfigsResult(resource_name="a", configs=[own])
    scripted = ScriptedBroker({DescribeConfigsRequest: DescribeConfigsResponse(results=[result])})
    async with cluster_of(scripted) as cluster:
        await cluster.refresh(())
        assert await election_settings(cluster, 0, [("b", None)]) == ElectionSettings()
        assert not scripted.seen(DescribeConfigsRequest)
        found = await election_settings(cluster, 1, [("a", LONGEST), ("b", None)])
        assert found.compares_logs
        assert found.in_force["a"].key == UNCLEAN
        (request,) = scripted.seen(DescribeConfigsRequest)
        assert [each.resource_name for each in request.resources] == ["a"]
