"""Arguments of another type than the annotated one: refused by name before anything is sent.

A str is a collection of its characters, which no caller means: ``delete_topics("ab")`` is not about a and b.
"""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncelog.clients.admin.admin import Admin
from oncelog.clients.admin.configs import Resource
from oncelog.clients.admin.features import FeatureUpdate
from oncelog.clients.admin.groups import MemberToRemove
from oncelog.clients.admin.topics import NewTopic
from oncelog.protocol.topic_partition import TopicPartition


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.delete_topics("ab"),
        lambda admin: admin.describe_topics("ab"),
        lambda admin: admin.describe_groups("ab"),
        lambda admin: admin.delete_groups("ab"),
        lambda admin: admin.describe_transactions("ab"),
        lambda admin: admin.fence_producers("ab"),
        lambda admin: admin.delete_topics(names="ab"),
        lambda admin: admin.delete_topics_by_id(bytes(16)),
        lambda admin: admin.committed_offsets_of_groups("ab"),
    ],
)
async def test_str_where_a_collection_is_meant_raises_type_error(
    call: Callable[[Admin], Coroutine[Any, Any, object]],
) -> None:
    async with Admin("localhost:1") as admin:
        with pytest.raises(TypeError, match=r": \w+ must be .*, not (str|bytes)"):
            await call(admin)


ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda admin: admin.create_topics(["x"]), "create_topics: topics[0] must be NewTopic, not str"),
        (
            lambda admin: admin.create_topics(NewTopic(name="x")),
            "create_topics: topics must be a collection of NewTopic, not NewTopic: put it into a list",
        ),
        (lambda admin: admin.create_partitions({"t": "4"}), "create_partitions: totals[t] must be int, not str"),
        (lambda admin: admin.create_partitions({3: 4}), "create_partitions: a key of totals must be str, not int"),
        (
            lambda admin: admin.list_offsets([ORDERS]),
            "list_offsets: timestamps must be a mapping of TopicPartition to int, not list",
        ),
        (lambda admin: admin.list_offsets({ORDERS: 1.5}), "list_offsets: timestamps[orders-0] must be int, not float"),
        (lambda admin: admin.committed_offsets(7), "committed_offsets: group_id must be str, not int"),
        (lambda admin: admin.create_topics([], validate_only=1), "create_topics: validate_only must be bool, not int"),
        (lambda admin: admin.delete_group_offsets("g", ORDERS), "delete_group_offsets: partitions must be"),
        (lambda admin: admin.delete_topics(), "delete_topics: missing a required argument: 'names'; it takes names"),
        (lambda admin: admin.delete_topics(topics=[]), "delete_topics: missing a required argument: 'names'"),
        (lambda admin: admin.transaction_history(7), "transaction_history: transactional_id must be str, not int"),
    ],
)
async def test_argument_of_another_type_raises_type_error_that_names_it(
    call: Callable[[Admin], Coroutine[Any, Any, object]], text: str
) -> None:
    async with Admin("localhost:1") as admin:
        with pytest.raises(TypeError, match=re.escape(text)):
            await call(admin)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: NewTopic(name="x", partitions="3"), "NewTopic: partitions must be int, not str"),
        (lambda: NewTopic(name=3), "NewTopic: name must be str, not int"),
        (lambda: NewTopic("x"), "NewTopic takes its fields by name, such as name=…"),
        (
            lambda: NewTopic(name="x", configs={"retention.ms": 3}),
            "NewTopic: configs[retention.ms] must be str, not int",
        ),
        (lambda: NewTopic(name="x", num_partitions=3), "has no setting num_partitions: did you mean partitions?"),
        (lambda: Resource(type="topic", name="x"), "Resource: type must be ResourceType, not str"),
        (lambda: FeatureUpdate("2"), "FeatureUpdate: level must be int, not str"),
        (lambda: MemberToRemove(member_id=3), "MemberToRemove: member_id must be str, not int"),
    ],
)
def test_field_of_another_type_raises_type_error_that_names_it(make: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        make()
