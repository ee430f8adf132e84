"""A str is a collection of its characters, which no caller means: ``delete_topics("ab")`` is not about a and b."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oncelog.clients.admin.admin import Admin


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
        with pytest.raises(TypeError, match=r"takes a collection as \w+, not one (str|bytes)"):
            await call(admin)
