"""Which frame is made late, how, and when it arrives: drawn from the seed and the frame's place in its history.

A client that sends a request again is at the same place, so how often it has to does not change what is drawn.
"""

from dataclasses import dataclass
from enum import Enum
from random import Random

from oncelog.protocol.api_keys import ApiKey
from tests.interop.late_frames.history import Place

_SHARE_WITH_FAULT = 0.9
_LATER_TRANSACTIONS = (0, 1, 1, 1, 1, 2, 2, 5)
_AT_CLOSE_SHARE = 0.02
_GIVEN_UP_SHARE = 0.04
"""Of the batches; each costs its client the time after which it gives a batch up."""
_MOST_ROUND_TRIPS = 4
_POINTS = (
    (ApiKey.PRODUCE, 0),
    (ApiKey.PRODUCE, 0),
    (ApiKey.PRODUCE, 1),
    (ApiKey.TXN_OFFSET_COMMIT, 0),
    (ApiKey.END_TXN, 0),
)
_GIVEN_UP_POINTS = (
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 1),
    (ApiKey.PRODUCE, 0),
)


class Kind(Enum):
    """What happens to a frame."""

    COPIED = "copied"
    """It goes on, and a copy arrives later over another connection: the client sent it twice, the first was held."""
    HELD = "held"
    """Its connection breaks under it, and it arrives later on the broker's side of that connection."""
    GIVEN_UP = "given up"
    """A batch that is held like that, and so is each repetition until the client gives the batch up and aborts."""
    OVERTAKEN = "overtaken"
    """It waits while frames of other connections pass."""
    WRITTEN = "written"
    """An AddPartitionsToTxn that a client or a leader of another version would have sent, arriving later."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``arrives`` with the response to the request at that place, to an AddPartitionsToTxn with one without an error;
    None: when the client is gone."""

    kind: Kind
    arrives: Place | None = None
    round_trips: int = 0


def draw(seed: int, producer: str, place: Place) -> Fault | None:
    """The fault of a client's frame."""
    rng = _random(seed, producer, place, "frame")
    if rng.random() >= _SHARE_WITH_FAULT:
        return None
    (kind,) = rng.choices((Kind.COPIED, Kind.HELD, Kind.OVERTAKEN), weights=(70, 15, 15))
    if place.api is ApiKey.PRODUCE and rng.random() < _GIVEN_UP_SHARE:
        return Fault(Kind.GIVEN_UP, Place(place.transaction + rng.choice((1, 1, 1, 2)), *rng.choice(_GIVEN_UP_POINTS)))
    if kind is Kind.OVERTAKEN:
        return Fault(kind, round_trips=rng.randint(1, _MOST_ROUND_TRIPS))
    return Fault(kind, _arrival(rng, place))


def draw_written(seed: int, producer: str, place: Place) -> tuple[Fault, int]:
    """The fault of an AddPartitionsToTxn for the partition of a version-2 produce, and the version to write it in."""
    rng = _random(seed, producer, place, "written")
    return Fault(Kind.WRITTEN, _arrival(rng, place)), rng.choice((3, 4, 5))


def _random(seed: int, producer: str, place: Place, purpose: str) -> Random:
    # A string: seeding with a tuple would go through hash(), which differs from process to process.
    return Random(f"{seed} {producer} {place.transaction} {place.api.name} {place.occurrence} {purpose}")


def _arrival(rng: Random, place: Place) -> Place | None:
    if rng.random() < _AT_CLOSE_SHARE:
        return None
    later = rng.choice(_LATER_TRANSACTIONS)
    if later == 0:
        return Place(place.transaction, ApiKey.END_TXN, 0)
    return Place(place.transaction + later, *rng.choice(_POINTS))
