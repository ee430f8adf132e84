"""Settings of topics that were set for a partition that waits, and are still there."""

from oncelog.clients.cli.cluster_health import assess
from oncelog.clients.cli.recovery_overrides import about_overrides, recovery_overrides
from oncelog.protocol.config_source import ConfigSource
from oncelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.broker.virtual_time import in_virtual_time
from tests.unit.clients.cli.test_cluster_health import WHOLE, broker, metadata
from tests.unit.clients.scripted_broker import ScriptedBroker
from tests.unit.clients.scripted_cluster import cluster_of

STRATEGY = "unclean.recovery.strategy"


def test_overrides_other_than_the_default_are_named_with_their_meaning_and_their_end() -> None:
    longest, unclean = about_overrides(
        {
            "b": {STRATEGY: "longest_log"},
            "a": {STRATEGY: "longest_log", "unclean.leader.election.enable": "false"},
            "c": {STRATEGY: "balanced", "unclean.leader.election.enable": "true"},
        }
    )[::-1]
    assert longest.startswith(f"{STRATEGY}=longest_log is set for a, b: if the in-sync replicas fail, one that lacks")
    assert longest.endswith(f"in sync again: `oncelog topic alter-config a b --delete {STRATEGY}`")
    assert unclean.startswith("unclean.leader.election.enable=true is set for c: ")


def test_strategy_at_level_0_is_said_to_have_no_effect() -> None:
    (said,) = about_overrides({"a": {STRATEGY: "balanced"}}, without_strategy=True)
    assert said.startswith(f"{STRATEGY}=balanced is set for a; {STRATEGY} has no effect: ")
    assert "oncelog feature upgrade eligible.leader.replicas.version 1" in said


def test_sentences_about_settings_are_problems_of_the_cluster() -> None:
    assert assess(WHOLE, 1, [broker(1), broker(2)], about_settings=["it is set"]).problems == ["it is set"]


@in_virtual_time
async def test_overrides_are_read_of_topics_with_replicas_out_of_sync_only() -> None:
    own = DescribeConfigsResourceResult(
        name=STRATEGY, value="longest_log", config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG
    )
    default = DescribeConfigsResourceResult(
        name="unclean.leader.election.enable", value="true", config_source=ConfigSource.DEFAULT_CONFIG
    )
    result = DescribeConfigsResult(resource_name="b", configs=[own, default])
    scripted = ScriptedBroker({DescribeConfigsRequest: DescribeConfigsResponse(results=[result])})
    async with cluster_of(scripted) as cluster:
        assert await recovery_overrides(cluster, WHOLE) == {}
        assert not scripted.seen(DescribeConfigsRequest)
        seen = metadata(a=(1, [1, 2], [1, 2]), b=(1, [1, 2], [1]))
        assert await recovery_overrides(cluster, seen) == {"b": {STRATEGY: "longest_log"}}
        (request,) = scripted.seen(DescribeConfigsRequest)
        assert [each.resource_name for each in request.resources] == ["b"]
