"""``protect_znodes`` and ``open_znodes``: the access of znodes that are there already, as a cluster changes to it.

The znodes of the brokers change, and the root of the cluster's metadata, because who may change the root may remove
what is directly below it. Other znodes there, such as ``/consumers``, stay as they are. Brokers may go on meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from oncelog.coordinator.metadata_store.znode_access import PROTECTED_ROOTS, ZnodeAccess, access_of
from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperSession
from oncelog.coordinator.metadata_store.zookeeper_address import ROOT

_AT_ONCE: Final = 500


async def protect_znodes(session: ZooKeeperSession) -> Counter[ZnodeAccess]:
    """Let only the user of the session change znodes, and read those with secrets; return how many there are of each.

    Raises ``StoreUnavailable``; then some are protected and others are not, and a repetition does the rest.
    """
    return await _change(session, access_of)


async def open_znodes(session: ZooKeeperSession) -> Counter[ZnodeAccess]:
    """Let everybody do everything; return how many znodes there are. Raises ``StoreUnavailable``."""
    return await _change(session, lambda path: ZnodeAccess.OPEN)


async def _change(session: ZooKeeperSession, access: Callable[[str], ZnodeAccess]) -> Counter[ZnodeAccess]:
    """Change znodes from the top down, level by level."""
    counts: Counter[ZnodeAccess] = Counter()
    level = [path for path in PROTECTED_ROOTS if await session.get(path) is not None]
    await session.set_access(ROOT, access(ROOT))
    counts[access(ROOT)] += 1
    while level:
        below: list[str] = []
        for first in range(0, len(level), _AT_ONCE):
            portion = level[first : first + _AT_ONCE]
            await asyncio.gather(*(session.set_access(path, access(path)) for path in portion))
            names = await asyncio.gather(*(session.children(path) for path in portion))
            counts.update(access(path) for path, found in zip(portion, names, strict=True) if found is not None)
            below += [f"{path}/{name}" for path, found in zip(portion, names, strict=True) for name in found or ()]
        level = below
    return counts
