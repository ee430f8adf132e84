"""How a client of the load and its director talk: lines on standard input and output.

A client has two roles, a *writer* and a *worker*, each with a thread of its own. Orders come on standard input,
``writer run``, ``writer pause``, ``worker run``, ``worker pause``; its end ends the process. Both begin paused.

A program is started with bootstrap servers, the client's name, and the numbers of the writer's and of the worker's
first transaction: a successor goes on counting. The environment variable LOAD_SECURITY has its settings of security, as
properties with the names of its client.

What happens goes to standard output, a JSON object a line: ``{"role", "event", "number", "count", "detail"}``.

- ``begin``: transaction ``number`` of this role, of ``count`` records, is about to be begun. Nothing is sent before.
- ``committed``, ``aborted``: it certainly is. ``unknown``: the end was requested, with an unknown outcome.
- ``paused``: the role has done as it was told. No transaction of its is open, and none has an end that is still to be
  decided: a role whose transaction ended with ``unknown`` has initialised its successor before it says so.
- ``trouble``: something that a role got over; ``detail`` says what.

An input record is ``client:number:index:count``; an output record is that of the worker's transaction, then ``|``, the
input, ``|`` and ``partition:offset`` of the input. The same in Java: ``tests/interop/programs/TransactionalLoad.java``.
"""

import faulthandler
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from oncelog.protocol.properties import parse_properties
from tests.faults.access import VARIABLE

Role: TypeAlias = Literal["writer", "worker"]
Event: TypeAlias = Literal["begin", "committed", "aborted", "unknown", "paused", "trouble"]

RECORDS: Final = 6
"""In a writer's transaction."""
ABORT_EACH: Final = 5
"""Every so many transactions of a writer are aborted on purpose."""
BATCH: Final = 20
"""A worker's transaction has no more inputs than that."""
OPEN_SECONDS: Final = 0.03
"""How long a transaction is held open between its halves."""
BETWEEN_SECONDS: Final = 0.05
"""Between two transactions of a writer."""
TRANSACTION_TIMEOUT_MS: Final = 20_000
CALL_SECONDS: Final = 15.0
"""What a client waits for before it asks again."""
_STACKS_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 4.0
"""Time to wait for a response before asking another broker. Shorter than most pauses of brokers: then the request
that the paused broker still has, and the one that its successor gets, are the same."""
DELIVERY_SECONDS: Final = 30.0


def security() -> dict[str, str]:
    """Return the settings of security that this program was started with."""
    return parse_properties(os.environ.get(VARIABLE, ""))


def say(role: Role, event: Event, number: int = 0, count: int = 0, detail: str = "") -> None:
    line = json.dumps({"role": role, "event": event, "number": number, "count": count, "detail": detail})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Gate:
    """Where a role waits while it is paused."""

    def __init__(self, role: Role) -> None:
        self._role: Role = role
        self._may_run = threading.Event()

    def run(self) -> None:
        self._may_run.set()

    def pause(self) -> None:
        self._may_run.clear()

    def pass_through(self) -> None:
        """Return at once, or as soon as the role may run."""
        if not self._may_run.is_set():
            say(self._role, "paused")
            self._may_run.wait()


def perform(roles: Mapping[Role, Callable[[Gate], None]]) -> None:
    """Run the roles, and obey orders until there are none any more; then end the process."""
    threading.Thread(target=_print_stacks, name="stacks", daemon=True).start()
    gates = {role: Gate(role) for role in roles}
    for role, run in roles.items():
        threading.Thread(target=_play, args=(role, run, gates[role]), name=role).start()
    _apply_orders(gates)


def _print_stacks() -> None:
    """Say from time to time where the program is, should it ever hang.

    With the interpreter's lock: ``faulthandler.dump_traceback_later`` reads the stacks of running threads without it,
    which can end the program.
    """
    never = threading.Event()
    while not never.wait(_STACKS_SECONDS):
        faulthandler.dump_traceback()


def _play(role: Role, run: Callable[[Gate], None], gate: Gate) -> None:
    try:
        run(gate)
    except BaseException:
        say(role, "trouble", detail=f"gave up: {traceback.format_exc()}")
        os._exit(1)


def _apply_orders(gates: Mapping[Role, Gate]) -> None:
    by_name = {str(role): gate for role, gate in gates.items()}
    for line in sys.stdin:
        role, _, verb = line.strip().partition(" ")
        if verb == "run":
            by_name[role].run()
        elif verb == "pause":
            by_name[role].pause()
    os._exit(0)


def inputs(client: str, number: int) -> Iterator[tuple[int, str]]:
    """The records of a writer's transaction, each with the partition that it goes to, modulo their number."""
    for index in range(RECORDS):
        yield number + index // 2, f"{client}:{number}:{index}:{RECORDS}"


def output(client: str, number: int, index: int, count: int, value: str, partition: int, offset: int) -> str:
    return f"{client}:{number}:{index}:{count}|{value}|{partition}:{offset}"
