"""``min.insync.replicas`` as the controller knows it, which is never less than what leaders go by."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from oncelog.coordinator.controller.cluster_state import LiveBroker
from oncelog.coordinator.controller.config_changes import ConfigResource, ResourceType
from oncelog.coordinator.controller.finalized_features import ELIGIBLE_LEADER_REPLICAS_VERSION as ELR
from oncelog.coordinator.controller.in_sync_minimums import MINIMUM_KEY, largest_default, overriding_minimum
from oncelog.coordinator.metadata_store.znodes import BrokerRegistration
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, Member
from tests.unit.coordinator.controller.test_controller import create, manual, state_of
from tests.unit.coordinator.controller.test_isr_changes import only, request, wanting


@pytest.mark.parametrize(
    ("text", "minimum"),
    [("2", 2), ("+2", 2), (" 2 ", 2), ("2_0", 20), ("0", None), ("-1", None), ("two", None), ("", None), (None, None)],
)
def test_minimum_is_read_as_brokers_read_it(text: str | None, minimum: int | None) -> None:
    """B57"""
    assert overriding_minimum({} if text is None else {MINIMUM_KEY: text}) == minimum


def brokers(**minimums: int | None) -> dict[int, LiveBroker]:
    return {
        int(name[1:]): LiveBroker(
            BrokerRegistration(broker_id=int(name[1:]), endpoints=(), min_insync_replicas=minimum), 1
        )
        for name, minimum in minimums.items()
    }


@pytest.mark.parametrize(
    ("started_with", "of_each", "of_all", "largest"),
    [
        ({"b1": 1, "b2": 3}, {}, {}, 3),
        ({"b1": None, "b2": None}, {}, {}, 1),
        ({"b1": 1, "b2": 3}, {}, {MINIMUM_KEY: "2"}, 2),
        ({"b1": 1, "b2": 1}, {2: {MINIMUM_KEY: "3"}}, {MINIMUM_KEY: "2"}, 3),
        ({"b1": 1, "b2": 1}, {2: {MINIMUM_KEY: "0"}}, {}, 1),
    ],
)
def test_largest_default_counts(
    started_with: dict[str, int | None], of_each: dict[int, Mapping[str, str]], of_all: Mapping[str, str], largest: int
) -> None:
    """B57"""
    assert largest_default(1, brokers(**started_with), lambda id_: of_each.get(id_, {}), of_all) == largest


async def joined(cluster: ClusterUnderTest, broker_id: int, minimum: int) -> Member:
    member = cluster.member(broker_id, begins_with={ELR: 1}, min_insync_replicas=minimum)
    await member.controller.start()
    member.task = asyncio.get_running_loop().create_task(member.controller.run())
    await cluster.settle()
    return member


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterUnderTest]:
    """The controller, which was started with 1, and two brokers that were started with 2."""
    cluster = ClusterUnderTest()
    for broker_id, minimum in ((1, 1), (2, 2), (3, 2)):
        await joined(cluster, broker_id, minimum)
    yield cluster
    await cluster.stop()


async def test_controller_with_a_lower_minimum_than_the_leader_remembers_eligible_replicas(
    cluster: ClusterUnderTest,
) -> None:
    """B57: the leader acknowledges nothing alone, so the follower that it drops has everything acknowledged."""
    await create(cluster, manual("t", (2, 3)))
    only(await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [2]), leader=2)))
    assert (await state_of(cluster, "t", 0)).elr == (3,)


async def test_lower_minimum_for_all_brokers_ends_the_eligibility(cluster: ClusterUnderTest) -> None:
    """B57: it is in force at the leader, too."""
    await create(cluster, manual("t", (2, 3)))
    only(await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [2]), leader=2)))
    cluster.members[1].configs.learn(ConfigResource(ResourceType.BROKER, ""), {MINIMUM_KEY: "1"}, written_at=1)
    await cluster.settle()
    assert (await state_of(cluster, "t", 0)).elr == ()


async def test_broker_that_leaves_takes_its_minimum_along(cluster: ClusterUnderTest) -> None:
    """B57: nothing stands still for the sake of a broker that leads nothing."""
    await create(cluster, manual("t", (1, 2)))
    only(await cluster.apis.alter_partition(request(cluster, "t", wanting(0, [1]))))
    assert (await state_of(cluster, "t", 0)).elr == (2,)
    for broker_id in (2, 3):
        await cluster.kill(broker_id)
    await cluster.settle()
    assert (await state_of(cluster, "t", 0)).elr == ()
