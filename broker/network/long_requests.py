"""How many bytes of long requests are under way at once, of all connections together.

A request of many elements takes thirty times its size in memory while it is under way: decoded, and as what is
described or written of it. So the frames under way are weighed, and above ``MOST_BYTES`` further ones wait as they
came, encoded, in their order. One request may begin whatever it weighs. Small requests are not weighed and never wait.

There are several accounts, so that requests which may have to wait for something (a commit for its replicas, a creation
for the metadata store) delay none of the others. What the work of a waiting request may depend on has another account
than that request: markers end the transactions that AddPartitionsToTxn may wait for, and a change of the in-sync
replicas lets an append be acknowledged. The APIs that are mentioned by name have requests of many elements of whatever
size; of all others those are weighed that are decoded in slices, since all that are half decoded are in memory.
A request that waits for other members of its group, or for records, is weighed until it is decoded.

Produce has bounds of its own, and so has what a client may send before it is authenticated.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from oncelog.protocol.api_keys import ApiKey

LONG_BYTES: Final = 4 * 1024
"""The frame of a long request has so many bytes at least."""
LARGE_BYTES: Final = 32 * 1024
"""The frame of a long request of an API that is not mentioned by name has so many bytes at least."""
MOST_BYTES: Final = 3 << 20
"""Of an account whose requests have names, mostly."""
MOST_DENSE_BYTES: Final = 1 << 20
"""Of an account whose requests may be numbers alone: each of four bytes becomes an object, and a result."""
_DESCRIBING: Final = (
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.LIST_OFFSETS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
)
_COMMITTING: Final = (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE)
_ADMINISTERING: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DELETE_GROUPS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
)
_ADDING: Final = (ApiKey.ADD_PARTITIONS_TO_TXN,)
_REPLICATING: Final = (ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
_CONTROLLING: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ALTER_PARTITION)
_MARKING: Final = (ApiKey.WRITE_TXN_MARKERS,)
_BOUND_OTHERWISE: Final = (ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS)


class Account:
    """The long requests of some APIs under way, and the connections whose next request is one that waits."""

    __slots__ = ("_admits", "_bytes", "_most_bytes", "_waiting", "least_bytes")

    def __init__(self, most_bytes: int = MOST_BYTES, least_bytes: int = LONG_BYTES) -> None:
        self._most_bytes = most_bytes
        self.least_bytes = least_bytes
        """Smaller requests are not weighed."""
        self._bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._admits = False

    def has_room(self, size: int) -> bool:
        """Return whether a request of ``size`` bytes may begin."""
        return self._bytes == 0 or self._bytes + size <= self._most_bytes

    def await_room(self, begin: Callable[[], None]) -> None:
        """Call ``begin`` when a request may begin. It may find that it has to wait again. Only if there is no room."""
        self._waiting.append(begin)

    def begun(self, size: int) -> None:
        """Count a request that has begun and is not done."""
        self._bytes += size

    def done(self, size: int) -> None:
        """Count a request that is done, whatever became of it."""
        self._bytes -= size
        if self._waiting and not self._admits:
            self._admits = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Have those that wait begin as long as there is room for one of the least size."""
        self._admits = False
        for _ in range(len(self._waiting)):
            if not self.has_room(self.least_bytes):
                break
            waited = len(self._waiting)
            self._waiting.popleft()()
            if len(self._waiting) == waited:  # It is larger than what is left, and waits again: before the others.
                self._waiting.rotate(1)
                break


class LongRequests:
    """The accounts of one broker."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        others = Account(MOST_DENSE_BYTES, LARGE_BYTES)
        self._accounts: dict[int, Account] = dict.fromkeys(map(int, ApiKey), others)
        self._weigh(_DESCRIBING, Account())
        self._weigh(_COMMITTING, Account())
        self._weigh(_ADMINISTERING, Account())
        self._weigh(_ADDING, Account(MOST_DENSE_BYTES))
        self._weigh(_REPLICATING, Account(MOST_DENSE_BYTES, LARGE_BYTES))
        self._weigh(_CONTROLLING, Account(MOST_DENSE_BYTES, LARGE_BYTES))
        self._weigh(_MARKING, Account(MOST_DENSE_BYTES, LARGE_BYTES))
        for key in _BOUND_OTHERWISE:
            del self._accounts[int(key)]

    def _weigh(self, keys: Iterable[ApiKey], account: Account) -> None:
        self._accounts |= dict.fromkeys(map(int, keys), account)

    def account_of(self, frame: memoryview) -> Account | None:
        """Return the account that a request belongs to, None if it is not weighed."""
        if len(frame) < LONG_BYTES:
            return None
        account = self._accounts.get(int.from_bytes(frame[:2]))
        return account if account is not None and len(frame) >= account.least_bytes else None
