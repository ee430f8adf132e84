"""Every kind of history that the simulation plays, and one play of one: ``play("transactions", 17)``."""

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple

from tests.simulation import (
    test_cluster_histories,
    test_group_histories,
    test_one_away,
    test_one_broker,
    test_replication_histories,
    test_topic_histories,
)
from tests.simulation.buggify import Swarm, swarming
from tests.simulation.journal import Entry, Journal, keep
from tests.simulation.replication_history import Step, run_history

LONGEST_CPU_SECONDS: Final = 120.0
"""Processor time after which a history is taken to hang: a hundred times what one takes."""


class Kind(NamedTuple):
    """One kind of history."""

    run: Callable[..., object]
    """Play the history of a seed; raise an exception if anything that must hold does not.

    A second argument is the list of faults that happen instead of all that ``plan`` returns.
    """
    about: str
    weight: int
    """How many of a mixture of seeds are of this kind."""
    swarm: bool = False
    """Whether each seed enables some of the buggify points."""
    needs_manners: bool = False
    """Whether it promises what it cannot keep where buggify points are enabled, so that there is no such form of it."""
    plan: Callable[[int], Sequence[Any]] | None = None
    """Return the faults of a seed, or the steps; missing where a history cannot be played with fewer of them."""


def _replicas(seed: int, steps: Sequence[Step] | None = None) -> None:
    run_history(test_replication_histories.steps_of(seed) if steps is None else steps, seed)


PLAIN: Final[Mapping[str, Kind]] = {
    "one-broker": Kind(test_one_broker.run, "transactions on one broker that crashes or loses power", 10),
    "replicas": Kind(
        _replicas,
        "appends, elections and crashes of three replicas under a scripted controller",
        6,
        plan=test_replication_histories.steps_of,
    ),
    "writers": Kind(
        test_cluster_histories.run,
        "writers with acks=all to a cluster of three, with faults",
        2,
        plan=test_cluster_histories.plan,
    ),
    "transactions": Kind(
        test_cluster_histories.run_transactions,
        "transactions, groups and readers on a cluster, with faults",
        2,
        plan=test_cluster_histories.plan_under_transactions,
    ),
    "harsh-writers": Kind(
        partial(test_cluster_histories.run, harsh=True),
        "the same writers; machines lose power at any time",
        2,
        plan=partial(test_cluster_histories.plan, harsh=True),
    ),
    "harsh-transactions": Kind(
        partial(test_cluster_histories.run_transactions, harsh=True),
        "the same transactions; machines lose power at any time",
        2,
        plan=partial(test_cluster_histories.plan_under_transactions, harsh=True),
    ),
    "worn-writers": Kind(
        test_cluster_histories.run_worn,
        "the same writers; disks, clocks and links are worn",
        2,
        plan=test_cluster_histories.plan_of_wear,
    ),
    "worn-transactions": Kind(
        test_cluster_histories.run_worn_transactions,
        "the same transactions; disks, clocks and links are worn",
        2,
        plan=test_cluster_histories.plan_of_wear_under_transactions,
    ),
    "sizes-writers": Kind(
        test_cluster_histories.run_on_any_size,
        "the same writers; clusters of 1, 2, 3, 5 or 7 brokers, replicated as the seed says",
        1,
        plan=test_cluster_histories.plan_on_any_size,
    ),
    "sizes-transactions": Kind(
        test_cluster_histories.run_transactions_on_any_size,
        "the same transactions; clusters of 1, 2, 3, 5 or 7 brokers",
        1,
        plan=test_cluster_histories.plan_on_any_size_under_transactions,
    ),
    "groups": Kind(
        test_group_histories.run,
        "a consumer group whose members join, leave, die and return",
        1,
        plan=test_group_histories.plan,
    ),
    "topics": Kind(
        test_topic_histories.run,
        "topics created again, emptied, compacted, with another minimum, read from followers",
        1,
        plan=test_topic_histories.plan,
    ),
    "one-away": Kind(
        test_one_away.run,
        "writers to a cluster of three; one broker at a time is away, and the others accept writes within seconds",
        2,
        needs_manners=True,
        plan=test_one_away.plan,
    ),
}
"""Those in which every part of the world keeps its manners, but for the faults that a history lists."""
SWARM: Final = "swarm-"
_SWARM_SHARE: Final = 1 / 3
"""Histories with buggify for each without."""


def _with_buggify(name: str, kind: Kind) -> Kind:
    return kind._replace(swarm=True, about=f"{name} with buggify", weight=max(1, int(kind.weight * _SWARM_SHARE)))


KINDS: Final[Mapping[str, Kind]] = {
    **PLAIN,
    **{f"{SWARM}{name}": _with_buggify(name, kind) for name, kind in PLAIN.items() if not kind.needs_manners},
}
"""The kinds by name: the default mixture."""


class HistoryName(NamedTuple):
    """A history, as users write it: ``transactions:17``."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


class Played(NamedTuple):
    """The outcome of one history."""

    name: HistoryName
    failure: str
    """The traceback, or nothing if all held."""
    virtual_seconds: float
    counts: Counter[str]
    digest: str
    """Of all that crossed the network, all disk calls and all events; empty unless it was wanted."""
    raised_in: str = ""
    """The type of the exception and the function that raised it: failures that agree in this are taken for the same."""


class Hangs(KeyboardInterrupt):
    """A history uses the processor and comes to no end.

    No handler may swallow this: asyncio catches whatever else a callback or a task raises.
    """


def play(
    name: HistoryName,
    *,
    digests: bool = False,
    listener: Callable[[Entry], None] | None = None,
    faults: Sequence[Any] | None = None,
) -> Played:
    """Play one history, in the main thread of a process; ``faults``: instead of all that its kind plans."""
    journal = Journal(listener, digests=digests)
    failure = raised_in = ""
    kind = KINDS[name.kind]
    with keep(journal), ExitStack() as resources:
        resources.enter_context(limited_to(LONGEST_CPU_SECONDS))
        if kind.swarm:
            resources.enter_context(swarming(Swarm.drawn(name.seed)))
        try:
            kind.run(name.seed) if faults is None else kind.run(name.seed, faults)
        except (Exception, Hangs) as error:
            failure = traceback.format_exc()
            raised_in = f"{type(error).__name__} in {traceback.extract_tb(error.__traceback__)[-1].name}"
    digest = "" if journal.digest is None else journal.digest.hexdigest()
    return Played(name, failure, journal.seconds, journal.counts, digest, raised_in)


def mixture(kinds: Mapping[str, Kind], base: int) -> Iterator[HistoryName]:
    """Yield histories for ever: in each round as many of each kind as its weight says, with seeds from ``base`` on.

    A round begins with one history of each kind.
    """
    seeds = dict.fromkeys(kinds, base)
    while True:
        for turn in range(max(known.weight for known in kinds.values())):
            for kind, known in kinds.items():
                if turn < known.weight:
                    yield HistoryName(kind, seeds[kind])
                    seeds[kind] += 1


@contextmanager
def limited_to(cpu_seconds: float) -> Iterator[None]:
    """Raise ``Hangs`` in what runs inside when it has used so much processor time."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"no end after {cpu_seconds:.0f} s of processor time")

    former = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, former)
