"""The sink's protocol against a modelled cluster and a modelled Spark: crashes, zombies, lost and late messages.

What runs is ``oncelog.spark_connector.sink.commit`` itself. A history ends with the query being run until no batch is
left; then every row is visible once, no transaction is left open, and no step is stuck. ``SAFEGUARDS`` takes parts of
the protocol away, one by one, and the same histories notice.
"""

import inspect
import logging
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from types import FunctionType
from typing import Any, Final, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from oncelog.spark_connector.sink.commit.endings import abort_all
from oncelog.spark_connector.sink.commit.prelude import begin_batch
from oncelog.spark_connector.sink.commit.sink_errors import SinkError
from oncelog.spark_connector.sink.commit.sink_transactions import driver_id, generation_of, task_id
from tests.unit.spark_connector.sink.commit.model_cluster import Cluster, Fate, ModelBroker
from tests.unit.spark_connector.sink.commit.model_spark import World, simulate
from tests.unit.spark_connector.sink.commit.sink_history import Checkpoint, Run, broker_of

T = TypeVar("T")

_SINK: Final = "oncelog.spark_connector.sink.commit"
_MODEL: Final = "tests.unit.spark_connector.sink.commit.model"
HISTORIES: Final = 250
ENOUGH: Final = 500
USUAL: Final = frozenset({"right", "stuck: TransactionsLost"})
"""Of histories in which coordinators abort what is open."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of warnings that drivers have been fenced."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_rows_after_any_history_are_visible_once() -> None:
    wrong = {seed: verdict for seed in range(HISTORIES) if (verdict := simulate(seed)) is not None}
    assert not wrong


def test_transactions_that_time_out_are_never_lost_silently() -> None:
    """Coordinators abort transactions at any time, even decided ones: then the query fails, and says so."""
    verdicts = _kinds_with_time_outs()
    assert verdicts.keys() <= USUAL, verdicts
    assert verdicts["right"] > 0.9 * HISTORIES


def test_replaced_topic_has_each_batch_as_a_whole_or_not_at_all() -> None:
    """Whenever it was deleted and created again: what was decided before is gone with it, and nothing else."""
    wrong = {seed: verdict for seed in range(HISTORIES) if (verdict := simulate(seed, replaces_topic=True)) is not None}
    assert not wrong


def test_rows_are_visible_once_whenever_partitions_are_added_to_the_state_topic() -> None:
    """The name of a sink hashes to another partition then."""
    found = {seed: simulate(seed, adds_state_partitions=True) for seed in range(HISTORIES)}
    assert not {seed: verdict for seed, verdict in found.items() if verdict is not None}


def _kind(verdict: str | None) -> str:
    return "right" if verdict is None else verdict.partition("(")[0]


class SinkMachine(RuleBasedStateMachine):
    """The same, with hypothesis choosing each step, and finding the shortest history that goes wrong."""

    world: World

    @initialize(seed=st.integers(0, 2**32), version=st.sampled_from((1, 2)), first_epoch=st.sampled_from((0, 32_763)))
    def begin(self, seed: int, version: int, first_epoch: int) -> None:
        logging.disable(logging.WARNING)
        self.world = World(seed, version=version, batches=2, fault_rate=0.1, first_epoch=first_epoch)

    @precondition(lambda self: self.world.driver is None and not self.world.is_finished)
    @rule(same_processes=st.booleans())
    def start(self, same_processes: bool) -> None:
        self.world.start_run(same_processes=same_processes)

    @precondition(lambda self: self.world.living)
    @rule(which=st.integers(0, 10), steps=st.integers(1, 12))
    def go_on(self, which: int, steps: int) -> None:
        actor = self.world.living[which % len(self.world.living)]
        for _ in range(steps):
            if not actor.is_done:
                self.world.step(actor)

    @precondition(lambda self: self.world.living)
    @rule(steps=st.integers(1, 60))
    def all_go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.world.living:
                self.world.step(self.world.rng.choice(self.world.living))

    @precondition(lambda self: self.world.driver is not None)
    @rule(dead=st.booleans())
    def leave_driver(self, dead: bool) -> None:
        self.world.leave_driver(dead=dead)

    @precondition(lambda self: len(self.world.living) > 1)
    @rule(which=st.integers(0, 10))
    def kill_task(self, which: int) -> None:
        victim = self.world.living[which % len(self.world.living)]
        if victim is not self.world.driver:
            victim.kill()

    @rule()
    def deliver_late(self) -> None:
        self.world.deliver_late()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            assert self.world.finish() is None
        finally:
            self.world.close()
            logging.disable(logging.NOTSET)


SinkMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSinkMachine = SinkMachine.TestCase


class Safeguard(NamedTuple):
    """A part of the protocol, and what stands there when it is gone."""

    what: str
    module: str
    function: str
    old: str
    new: str
    time_outs: bool = False
    replaces_topic: bool = False
    adds_state_partitions: bool = False
    first: int = 0
    """Where to begin to look for a history that notices: some are rare."""


SAFEGUARDS: Final = (
    Safeguard(
        "the decision is written",
        "batch_commit", "commit_batch",
        "driver = await write_state(broker, driver, state, permit.home)",
        "pass",
    ),
    Safeguard(
        "attempts have transactional ids of their own",
        "sink_transactions", "task_id",
        '{sink}.{generation}.{process}.{slot}',
        '{sink}.{generation}.shared.0',
    ),
    Safeguard(
        "processes have transactional ids of their own",
        "sink_transactions", "task_id",
        '{sink}.{generation}.{process}.{slot}',
        '{sink}.{generation}.any.{slot}',
        first=1600,
    ),
    Safeguard(
        "the driver fences older ones first",
        "prelude", "begin_batch",
        "await take_over(broker, sink)",
        'broker.cluster.init(f"{sink}.driver", None) if f"{sink}.driver" not in broker.cluster.ids else '
        'Driver(*[getattr(broker.cluster.ids[f"{sink}.driver"], n) for n in ("producer_id", "epoch", "sequence")])',
    ),
    Safeguard(
        "cleaning up looks at the generation",
        "endings", "strays",
        "of is not None and of <= generation and each not in listed",
        "of is not None and each not in listed",
    ),
    Safeguard(
        "cleaning up leaves alone what is decided",
        "endings", "strays",
        " and each not in listed",
        "",
    ),
    Safeguard(
        "the generation goes on where others may be at work",
        "prelude", "begin_batch",
        "if leftovers or not state.is_followed_by(driver):",
        "if state.generation == 0:",
    ),
    Safeguard(
        "transactions are validated before the decision",
        "batch_commit", "commit_batch",
        'await _validate(broker, outcome.transactions, f"batch {batch}")',
        "pass",
        time_outs=True,
    ),
    Safeguard(
        "a batch of which a part is gone with its topic is not decided",
        "batch_commit", "commit_batch",
        'await _require_same_topics(broker, outcome, f"batch {batch}")',
        "pass",
        replaces_topic=True,
    ),
    Safeguard(
        "an abort asks for the decision first",
        "batch_commit", "abort_batch",
        "if outcomes and (state.decides(outcomes[0].query, batch) or state.is_beyond(outcomes[0].query, batch)):",
        "if False:",
    ),
    Safeguard(
        "an abort without messages fences first",
        "batch_commit", "abort_batch",
        "found = (await find_state(broker, sink, await take_over(broker, sink))).state",
        "found = await broker.read_state(sink, (await broker.state_partitions())[0])",
        first=4300,
    ),
    Safeguard(
        "a batch that is decided is skipped",
        "task", "write_rows",
        "if permit.is_decided(query, batch):",
        "if False:",
    ),
    Safeguard(
        "a batch that is decided is not decided again",
        "batch_commit", "commit_batch",
        "if state.decides(query, batch):",
        "if False:",
    ),
    Safeguard(
        "an id whose InitProducerId had no response is not used",
        "task", "_begin",
        "continue",
        "slots._unanswered.clear(); slots._uses.clear()",
        first=700,
    ),
    Safeguard(
        "listed transactions are committed by the next driver",
        "batch_commit", "commit_batch",
        "await _carry_out(broker, state, fail_on_loss)",
        "pass",
    ),
    Safeguard(
        "a refused commit is looked at",
        "endings", "commit_decided",
        "if not refused:",
        "if True:",
        time_outs=True,
    ),
    Safeguard(
        "strays are aborted",
        "endings", "find_strays",
        "for each in strays(state, generation, opened)",
        "for each in ()",
    ),
    Safeguard(
        "a record that may not be the newest is looked for in every partition",
        "state_home", "find_state",
        "if state is not None and state.is_followed_by(driver):",
        "if True:",
        adds_state_partitions=True,
    ),
)  # fmt: skip


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.what.replace(" ", "-"))
def test_protocol_without_a_safeguard_fails_in_some_history(
    safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _take_away(safeguard, monkeypatch)
    if not safeguard.time_outs:
        seeds = range(safeguard.first, safeguard.first + ENOUGH)
        more = {"replaces_topic": safeguard.replaces_topic, "adds_state_partitions": safeguard.adds_state_partitions}
        noticed = any(simulate(seed, **more) for seed in seeds)
        assert noticed, f"no history of {ENOUGH} fails"
        return
    without = _kinds_with_time_outs()
    monkeypatch.undo()
    logging.disable(logging.WARNING)
    assert without.keys() - USUAL or without["right"] < _kinds_with_time_outs()["right"] - HISTORIES // 50


def _kinds_with_time_outs() -> Counter[str]:
    return Counter(_kind(simulate(seed, time_outs=True)) for seed in range(HISTORIES))


def _take_away(safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the function without its safeguard, and put that wherever the function is known."""
    module: Any = sys.modules[f"{_SINK}.{safeguard.module}"]
    owner = module.SlotPool if safeguard.function == "take" else module
    original: FunctionType = getattr(owner, safeguard.function)
    source = inspect.cleandoc("\n" + inspect.getsource(original))
    assert source.count(safeguard.old) == 1, "the table is not of this code any more"
    scope: dict[str, Any] = {}
    code = compile(source.replace(safeguard.old, safeguard.new), module.__file__, "exec")
    exec(code, vars(module), scope)  # noqa: S102  # Our own source, one line of it changed.
    for name, known in list(sys.modules.items()):
        if name.startswith((_SINK, _MODEL)) and vars(known).get(safeguard.function) is original:
            monkeypatch.setattr(known, safeguard.function, scope[safeguard.function])
    if owner is not module:
        monkeypatch.setattr(owner, safeguard.function, scope[safeguard.function])


def test_model_broker_has_the_methods_of_the_port() -> None:
    """The model has what the protocol asks for, and nothing of it is missing."""
    from oncelog.spark_connector.sink.commit.sink_broker import SinkBroker

    requested = {name for name, _ in inspect.getmembers(SinkBroker, inspect.isfunction) if not name.startswith("_")}
    assert requested <= {name for name, _ in inspect.getmembers(ModelBroker, inspect.isfunction)}


def _run(work: Coroutine[Any, Any, T]) -> T:
    """To its end, alone."""
    while True:
        try:
            work.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", [1, 2])
def test_task_whose_transaction_was_aborted_is_fenced(version: int) -> None:
    """Its later rows would be a transaction of the same epoch with version 1, and look like a whole one."""
    cluster = Cluster(version)
    broker = ModelBroker(cluster, lambda: Fate.RESPONDED)
    writer = _run(broker.open_writer("s.1.p.0"))
    _run(writer.write([1]))
    _run(abort_all(broker, [writer.transaction]))
    with pytest.raises(SinkError):
        _run(writer.write([2]))
    assert not cluster.open_ids


@pytest.mark.parametrize("version", [1, 2])
def test_query_that_is_started_for_each_batch_keeps_its_generation(version: int) -> None:
    """Spark ends Python processes that have nothing to do for a minute; ids must not grow with each batch then."""
    cluster, checkpoint = Cluster(version), Checkpoint()
    for batch in range(20):
        Run(cluster, checkpoint, "p").run_batch((batch + 1) * 10)
    assert cluster.ids.keys() == {"s.driver", "s.1.p.0", "s.1.p.1"}
    assert sorted(cluster.visible) == list(range(200))


@pytest.mark.parametrize("version", [1, 2])
def test_generation_after_an_unused_permit_is_incremented(version: int) -> None:
    """Tasks of it may be at work."""
    cluster, checkpoint = Cluster(version), Checkpoint()
    Run(cluster, checkpoint, "p").run_batch(10)
    unused = _run(begin_batch(broker_of(cluster), "s"))
    assert unused.generation == 1
    assert _run(begin_batch(broker_of(cluster), "s")).generation == 2


def test_generation_of_a_task_id_is_parsed() -> None:
    assert generation_of("s", task_id("s", 7, "p", 0)) == 7
    assert generation_of("1", task_id("1", 1, "p", 0)) == 1
    for other in ("s.driver", "s.7.p", "t.7.p.0", "s.t.7.p.0", "s.-1.p.0", "xs.7.p.0", "s.1.orders.driver"):
        assert generation_of("s", other) is None


@given(st.lists(st.text("s1.", min_size=1, max_size=8), min_size=2, max_size=2, unique=True), st.integers(0, 12))
def test_ids_of_one_sink_are_never_ids_of_another(names: list[str], generation: int) -> None:
    """Whatever users call their sinks: an id that looks like a task's of another sink would be aborted as a stray."""
    mine, other = names
    for transactional_id in (driver_id(other), task_id(other, generation, "1", 1)):
        assert generation_of(mine, transactional_id) is None
