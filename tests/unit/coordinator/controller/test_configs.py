"""Dynamic configuration: what operations make of it, and how every broker comes to know it."""

import asyncio
import json
import logging
from collections.abc import Mapping

import pytest

from oncelog.coordinator.controller.api_error import NO_ERROR, ApiError
from oncelog.coordinator.controller.config_changes import (
    ConfigAlteration,
    ConfigOperation,
    ConfigResource,
    OperationType,
    ResourceType,
    altered,
    described_change,
    resource_at,
)
from oncelog.coordinator.controller.config_repository import ConfigRepository
from oncelog.coordinator.controller.membership import prepare
from oncelog.coordinator.metadata_store import paths, znodes
from oncelog.coordinator.metadata_store.store import Session
from oncelog.protocol.errors import ErrorCode
from tests.unit.coordinator.controller.cluster import ClusterUnderTest, Rules, running_cluster

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKERS = ConfigResource(ResourceType.BROKER, "")
SET, DELETE, APPEND, SUBTRACT = OperationType


def alteration(*operations: tuple[str, OperationType, str | None], replaces_all: bool = False) -> ConfigAlteration:
    return ConfigAlteration(
        resource=TOPIC,
        operations=tuple(ConfigOperation(*operation) for operation in operations),
        replaces_all=replaces_all,
    )


def apply(current: Mapping[str, str], *operations: tuple[str, OperationType, str | None]) -> object:
    result = altered(current, alteration(*operations), Rules())
    return result.code if isinstance(result, ApiError) else result


def test_set_and_delete() -> None:
    assert apply({}, ("retention.ms", SET, "1")) == {"retention.ms": "1"}
    assert apply({"retention.ms": "1"}, ("retention.ms", SET, "2")) == {"retention.ms": "2"}
    assert apply({"retention.ms": "1"}, ("retention.ms", DELETE, None)) == {}
    assert apply({}, ("retention.ms", DELETE, None)) == {}


def test_append_and_subtract_work_on_lists_beginning_with_the_default() -> None:
    assert apply({}, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    assert apply({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact")) == {"cleanup.policy": "compact"}
    assert apply({"cleanup.policy": "compact,delete"}, ("cleanup.policy", SUBTRACT, "compact")) == {
        "cleanup.policy": "delete"
    }
    assert apply({}, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": ""}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("cleanup.policy", SET, "x" * 32_768), ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_alterations_are_refused(operation: tuple[str, OperationType, str | None], code: ErrorCode) -> None:
    assert apply({"retention.ms": "1"}, operation) is code


def test_replacing_removes_what_is_not_named() -> None:
    change = alteration(("retention.ms", SET, "2"), replaces_all=True)
    assert altered({"retention.ms": "1", "cleanup.policy": "compact"}, change, Rules()) == {"retention.ms": "2"}


def test_entity_paths_are_kafkas() -> None:
    for resource, path in [
        (TOPIC, "topics/t"),
        (BROKERS, "brokers/<default>"),
        (ConfigResource(ResourceType.BROKER, "3"), "brokers/3"),
        (ConfigResource(ResourceType.USER, "al ice@x*~"), "users/al%20ice%40x%2A%7E"),
        (ConfigResource(ResourceType.USER, "<default>"), "users/%3Cdefault%3E"),
    ]:
        assert resource.entity_path == path
        assert resource_at(path) == resource


def test_change_is_described_without_secret_values() -> None:
    before, after = {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}
    assert described_change(before, after, shows_values=True) == "b=4, c is not set any more, d=5"
    assert described_change(before, after, shows_values=False) == "b is set, c is not set any more, d is set"


class TestRepository:
    async def test_change_is_stored_announced_and_known(self) -> None:
        async with running_cluster(1) as cluster:
            member = cluster.members[1]
            heard: list[tuple[ConfigResource, Mapping[str, str]]] = []
            member.configs.add_listener(lambda resource, overrides: heard.append((resource, overrides)))
            assert await member.configs.alter([alteration(("retention.ms", SET, "7"))]) == [NO_ERROR]
            assert member.configs.topic_overrides("t") == {"retention.ms": "7"}
            assert heard == [(TOPIC, {"retention.ms": "7"})]
            stored = await member.session.get(paths.topic_config("t"))
            assert stored is not None
            assert json.loads(stored.data) == {"version": 1, "config": {"retention.ms": "7"}}
            changes = await member.session.children(paths.CONFIG_CHANGES)
            assert changes == ["config_change_0000000000"]
            change = await member.session.get(f"{paths.CONFIG_CHANGES}/{changes[0]}")
            assert change is not None
            assert json.loads(change.data) == {"version": 2, "entity_path": "topics/t"}
            await cluster.settle()
            assert len(heard) == 1

    async def test_changed_settings_of_a_topic_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        async with running_cluster(1) as cluster:
            await cluster.members[1].configs.alter([alteration(("retention.ms", SET, "1"))])
            await cluster.members[1].configs.alter([alteration(("retention.ms", SET, "2"))])
        assert "Settings of topics/t changed: retention.ms=2" in caplog.text

    async def test_change_reaches_every_broker(self) -> None:
        async with running_cluster(1, 2, 3) as cluster:
            for number in range(5):
                errors = await cluster.members[2].configs.alter([alteration(("retention.ms", SET, str(number)))])
                assert errors == [NO_ERROR]
            await cluster.settle()
            for member in cluster.members.values():
                assert member.configs.topic_overrides("t") == {"retention.ms": "4"}

    async def test_brokers_have_their_own_and_common_configuration(self) -> None:
        async with running_cluster(1, 2) as cluster:
            own = ConfigResource(ResourceType.BROKER, "2")
            changes = [
                ConfigAlteration(
                    resource=resource, operations=(ConfigOperation("retention.ms", SET, resource.name or "0"),)
                )
                for resource in (own, BROKERS)
            ]
            assert await cluster.members[1].configs.alter(changes) == [NO_ERROR, NO_ERROR]
            await cluster.settle()
            configs = cluster.members[2].configs
            assert configs.broker_overrides(2) == {"retention.ms": "2"}
            assert configs.broker_overrides(1) == {}
            assert configs.cluster_overrides() == {"retention.ms": "0"}
            assert await cluster.members[1].session.children(paths.BROKER_CONFIGS) == ["2", "<default>"]

    async def test_changes_of_two_brokers_at_once_are_both_made(self) -> None:
        async with running_cluster(1, 2) as cluster:
            cluster.disk.delay = lambda: asyncio.sleep(0)
            results = await asyncio.gather(
                cluster.members[1].configs.alter([alteration(("retention.ms", SET, "1"))]),
                cluster.members[2].configs.alter([alteration(("cleanup.policy", APPEND, "compact"))]),
            )
            assert list(results) == [[NO_ERROR], [NO_ERROR]]
            await cluster.settle()
            for member in cluster.members.values():
                assert member.configs.topic_overrides("t") == {
                    "retention.ms": "1",
                    "cleanup.policy": "delete,compact",
                }

    async def test_validate_only_changes_nothing(self) -> None:
        async with running_cluster(1) as cluster:
            configs = cluster.members[1].configs
            assert await configs.alter([alteration(("retention.ms", SET, "7"))], validate_only=True) == [NO_ERROR]
            bad = await configs.alter([alteration(("retention.ms", SET, "x"))], validate_only=True)
            assert [error.code for error in bad] == [ErrorCode.INVALID_CONFIG]
            assert await cluster.members[1].session.get(paths.topic_config("t")) is None

    async def test_resource_or_key_named_twice_is_refused(self) -> None:
        async with running_cluster(1) as cluster:
            once = alteration(("retention.ms", SET, "7"))
            twice = await cluster.members[1].configs.alter([once, once])
            assert [error.code for error in twice] == [ErrorCode.INVALID_REQUEST] * 2
            keys = alteration(("retention.ms", SET, "7"), ("retention.ms", DELETE, None))
            assert [error.code for error in await cluster.members[1].configs.alter([keys])] == [
                ErrorCode.INVALID_REQUEST
            ]

    async def test_alteration_without_a_store_is_refused(self) -> None:
        async with running_cluster(1) as cluster:
            cluster.disk.fail("sync", ".journal")
            errors = await cluster.members[1].configs.alter([alteration(("retention.ms", SET, "7"))])
            assert [error.code for error in errors] == [ErrorCode.REQUEST_TIMED_OUT]

    async def test_notifications_do_not_pile_up(self) -> None:
        async with running_cluster(1, 2) as cluster:
            configs = cluster.members[1].configs
            for number in range(1_050):
                assert await configs.alter([alteration(("retention.ms", SET, str(number)))]) == [NO_ERROR]
                if number % 50 == 0:
                    await cluster.settle()
            await cluster.settle()
            left = await cluster.members[1].session.children(paths.CONFIG_CHANGES)
            assert left is not None
            assert len(left) < 1_000
            assert cluster.members[2].configs.topic_overrides("t") == {"retention.ms": "1049"}

    async def test_broker_that_missed_removed_notifications_reads_everything(self) -> None:
        async with running_cluster(1) as cluster:
            session, configs = cluster.members[1].session, cluster.members[1].configs
            late = ConfigRepository(cluster.members[1].store, Rules())
            await late.load(session, lambda: None)
            other = ConfigAlteration(
                resource=ConfigResource(ResourceType.TOPIC, "other"),
                operations=(ConfigOperation("retention.ms", SET, "9"),),
            )
            assert await configs.alter([other]) == [NO_ERROR]
            for number in range(1_050):
                await configs.alter([alteration(("retention.ms", SET, str(number)))])
                if number % 50 == 0:
                    await cluster.settle()
            await late.refresh(session, lambda: None)
            assert late.topic_overrides("other") == {"retention.ms": "9"}
            assert late.topic_overrides("t") == {"retention.ms": "1049"}

    async def test_late_read_does_not_undo_newer_overrides(self) -> None:
        cluster = ClusterUnderTest()
        configs = ConfigRepository(cluster.ensemble.connect(), Rules())
        configs.learn(TOPIC, {"retention.ms": "2"}, 20)
        configs.learn(TOPIC, {"retention.ms": "1"}, 10)
        assert configs.topic_overrides("t") == {"retention.ms": "2"}

    async def test_malformed_entities_are_left_alone(self) -> None:
        cluster = ClusterUnderTest()
        store = cluster.ensemble.connect()
        session: Session | None = store.session
        assert session is not None
        await prepare(session)
        await session.create(paths.topic_config("strange"), b"not json")
        await session.create(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))
        await session.create(paths.CONFIG_CHANGE_PREFIX, b"not json", sequential=True)
        configs = ConfigRepository(store, Rules())
        await configs.load(session, lambda: None)
        await configs.refresh(session, lambda: None)
        assert configs.topic_overrides("t") == {"retention.ms": "1"}
        assert configs.topic_overrides("strange") == {}
        assert (configs.is_unreadable("strange"), configs.is_unreadable("t")) == (True, False)
        strange = ConfigResource(ResourceType.TOPIC, "strange")
        set_one = (ConfigOperation("retention.ms", SET, "2"),)
        (refused,) = await configs.alter([ConfigAlteration(resource=strange, operations=set_one)])
        assert refused.code is ErrorCode.INVALID_CONFIG
        assert "The znode /config/topics/strange is malformed" in (refused.message or "")
        replacement = ConfigAlteration(resource=strange, operations=set_one, replaces_all=True)
        assert await configs.alter([replacement]) == [NO_ERROR]
        assert configs.topic_overrides("strange") == {"retention.ms": "2"}
        assert not configs.is_unreadable("strange")

    async def test_malformed_entity_that_is_mended_without_a_notification_is_read_again(self) -> None:
        cluster = ClusterUnderTest()
        store = cluster.ensemble.connect()
        session: Session | None = store.session
        assert session is not None
        await prepare(session)
        await session.create(paths.topic_config("t"), b"not json")
        configs, changes = ConfigRepository(store, Rules()), asyncio.Event()
        await configs.load(session, changes.set)
        await session.set(paths.topic_config("t"), znodes.encode_config({"retention.ms": "1"}))
        await changes.wait()
        await configs.refresh(session, changes.set)
        assert configs.topic_overrides("t") == {"retention.ms": "1"}
