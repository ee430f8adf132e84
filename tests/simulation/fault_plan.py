"""The faults of a cluster history as data: drawn before the history begins, from a random stream of their own.

The clients draw from other streams, and each fault draws its details from one of its own. So a history can be played
again without some of its faults, and the others stay what they are (``shrinking.py``). Delays of the network and what
the brokers draw still come from one stream each, so what happens between the faults may change.
"""

import random
from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

BROKERS: Final = (1, 2, 3)
_AT_THE_SAME_TIME: Final = 0.3
_DISTURBED: Final = 0.1
_PAUSES: Final = (0.0, 0.05, 0.5, 3.0)
"""Most seconds from one fault to the next."""


class Fault(Enum):
    """What may happen next."""

    KILL = auto()
    POWER_LOSS = auto()
    DISK = auto()
    """A log that cannot be written: the broker stops, and is started again with another disk cable."""
    FULL_DISK = auto()
    """For a while. Writes go on through the others, unless something else is wrong, too."""
    STALLED_DISK = auto()
    """A disk call that does not return for a while: the event loop stands still, the process's other threads go on."""
    RESTART = auto()
    """In an orderly way."""
    PAUSE = auto()
    ISOLATE = auto()
    """One broker from the others, or two from each other."""
    CUT_LINK = auto()
    """Two brokers from each other, one way or both, and nothing else: little may change, and writes go on."""
    CUT_FROM_ENSEMBLE = auto()
    EXPIRE = auto()
    ENSEMBLE_DOWN = auto()
    ENSEMBLE_BEHIND = auto()
    """What one broker reads of the ensemble is old for a while."""
    UNREACHABLE = auto()
    ELECT = auto()
    REASSIGN = auto()
    CREATE = auto()
    DELETE = auto()
    """A topic that no client uses."""
    CONFIGURE = auto()
    """A topic's setting is changed through any broker."""
    HOLD_CONTROL = auto()
    """What a controller sends to one broker is held up, perhaps until there is another controller."""
    REPEAT_CONTROL = auto()
    """Some of what controllers have sent arrives once more."""
    MOVE_AWAY = auto()
    """Replicas leave a broker that cannot be reached, and the controller changes before it hears of that."""
    HEAL = auto()
    SHORT_WRITE = auto()
    SLOW_DISK = auto()
    """Calls off the loop, such as fsync, take up to seconds for a while."""
    READ_ERROR = auto()
    BIT_ROT = auto()
    """Of a broker that was killed, at its end of a log."""
    LOST_END = auto()
    """The end of a log, or its directory, is gone after its broker was killed; the machine has lost no power."""
    CLOCK_SKEW = auto()
    CLOCK_JUMP = auto()
    """By minutes: what times out in wall-clock time does so minutes late."""
    ONE_WAY_CUT = auto()
    REFUSED_LINK = auto()
    LATE_DELIVERY = auto()
    """What one broker has sent to another arrives late, perhaps when both have given their connection up."""


WEAR: Final = tuple(Fault)[tuple(Fault).index(Fault.SHORT_WRITE) :]
"""Those of disks, clocks and links that only worn clusters have; seeds of the other kinds do not depend on them."""
_USUAL: Final = tuple(Fault)[: -len(WEAR)]
NEEDS_WHOLE_CLUSTER: Final = frozenset({Fault.POWER_LOSS, Fault.CUT_LINK})
"""Faults that need a whole cluster, so that nothing else may begin meanwhile."""


class PlannedFault(NamedTuple):
    """One fault, or order."""

    number: int
    """In the plan as it was drawn."""
    fault: Fault
    broker_id: int
    """The broker that it happens to, if it happens to one."""
    seed: int
    """Of the stream that gives its duration and its other details."""
    in_background: bool
    """Whether the next one may begin before its end."""
    disturbs: bool
    """Whether clients are disturbed, too."""
    pause: float
    """Seconds until the next one."""

    def __str__(self) -> str:
        """Return it as a line of a report."""
        together = ", in the background" if self.in_background else ""
        clients = ", clients are disturbed" if self.disturbs else ""
        return f"{self.number}: {self.fault.name} (broker {self.broker_id}{together}{clients}; then {self.pause:.3f} s)"


def fault_plan(
    seed: int,
    count: int,
    *,
    harsh: bool = False,
    broker_ids: Sequence[int] = BROKERS,
    excluded: Collection[Fault] = (),
) -> list[PlannedFault]:
    """Return so many faults, of kinds that are chosen for the whole history; ``harsh``: with more power losses."""
    rng = random.Random(f"faults {seed}")
    usual = [fault for fault in _USUAL if fault not in excluded]
    kinds = rng.sample(usual, rng.randint(3, len(usual)))
    if harsh:
        kinds += [Fault.POWER_LOSS] * (len(kinds) // 2)
    return [_planned(number, rng, kinds, harsh=harsh, broker_ids=broker_ids) for number in range(count)]


def worn_plan(seed: int, count: int, *, excluded: Collection[Fault] = ()) -> list[PlannedFault]:
    """Return so many faults of a worn cluster, in which power is lost at any time, too."""
    rng = random.Random(f"wear {seed}")
    wear = [fault for fault in WEAR if fault not in excluded]
    kinds = [*rng.sample(wear, rng.randint(2, len(wear))), *rng.sample(_USUAL, rng.randint(1, 8)), Fault.POWER_LOSS]
    return [_planned(number, rng, kinds, harsh=True) for number in range(count)]


def _planned(
    number: int, rng: random.Random, kinds: list[Fault], *, harsh: bool, broker_ids: Sequence[int] = BROKERS
) -> PlannedFault:
    fault = rng.choice(kinds)
    blocks = fault in NEEDS_WHOLE_CLUSTER and not (harsh and fault is Fault.POWER_LOSS)
    return PlannedFault(
        number=number,
        fault=fault,
        broker_id=rng.choice(broker_ids),
        seed=rng.getrandbits(32),
        in_background=rng.random() < _AT_THE_SAME_TIME and not blocks,
        disturbs=rng.random() < _DISTURBED,
        pause=rng.choice(_PAUSES) * rng.random(),
    )
