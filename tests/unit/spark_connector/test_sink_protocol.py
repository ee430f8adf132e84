"""The sink's protocol against a modelled cluster and a modelled Spark: crashes, zombies, lost and late messages.

What runs is ``spark_connector.sink`` itself. A history ends with the query being run until it has nothing left to do;
then every row is visible once, nothing is left open, and nobody is stuck. ``SAFEGUARDS`` takes parts of the protocol
away, one by one, and the same histories notice.
"""

import inspect
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.unit.spark_connector.model_cluster import ModelBroker
from tests.unit.spark_connector.model_spark import World, simulate

_SINK: Final = "spark_connector.sink"
HISTORIES: Final = 250


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of warnings that drivers have been fenced."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_every_row_is_visible_once_after_any_history() -> None:
    wrong = {seed: verdict for seed in range(HISTORIES) if (verdict := simulate(seed)) is not None}
    assert not wrong


def test_what_times_out_is_never_lost_silently() -> None:
    """Coordinators abort transactions at any time, even decided ones: then the query fails, and says so."""
    verdicts = Counter(_kind(simulate(seed, time_outs=True)) for seed in range(HISTORIES))
    assert verdicts.keys() <= {"right", "stuck: TransactionsLost"}, verdicts
    assert verdicts["right"] > 0.9 * HISTORIES


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
            self.world.recover()
            self.world.let_zombies_finish()
            self.world.recover()
            self.world.clean_up()
            assert self.world.verdict() is None
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


SAFEGUARDS: Final = (
    Safeguard(
        "the decision is written",
        "batch_commit", "commit_batch",
        "driver = await write_state(broker, driver, state)",
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
        "if leftovers or not memory.continues(state):",
        "if state.generation == 0:",
    ),
    Safeguard(
        "transactions are validated before the decision",
        "batch_commit", "commit_batch",
        "await _validate(broker, transactions, batch)",
        "pass",
        time_outs=True,
    ),
    Safeguard(
        "an abort asks for the decision first",
        "batch_commit", "abort_batch",
        "if outcomes and state.decides(outcomes[0].query, batch):",
        "if False:",
    ),
    Safeguard(
        "an abort without messages fences first",
        "batch_commit", "abort_batch",
        "await take_over(broker, sink)",
        "pass",
    ),
    Safeguard(
        "a batch that is decided is skipped",
        "task", "write_rows",
        "first = None if permit.is_decided(query, batch) else next(rows, None)",
        "first = next(rows, None)",
    ),
    Safeguard(
        "a batch that is decided is not decided again",
        "batch_commit", "commit_batch",
        "if not state.decides(query, batch):",
        "if not any(each.skipped for each in outcomes):",
    ),
    Safeguard(
        "an id whose InitProducerId was not answered is left alone",
        "task", "_begin",
        "slot = slots.take(permit.sink, permit.generation, batch)",
        "slot = locals().get('slot', None) or slots.take(permit.sink, permit.generation, batch)",
    ),
    Safeguard(
        "aborting with version 1 bumps the epoch",
        "endings", "abort_all",
        "await end_all(broker, [each for each in transactions if each.version >= 2], commit=False)\n"
        "    for each in transactions:",
        "await end_all(broker, transactions, commit=False)\n    for each in ():",
    ),
    Safeguard(
        "what is listed is committed by whoever comes next",
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
        "a slot is used once for each batch",
        "task", "take",
        "self._batches[sink] = (now, slot + 1)",
        "self._batches[sink] = (now, slot)",
    ),
    Safeguard(
        "a task of a batch before the last one takes no slot",
        "task", "take",
        "if now < last:",
        "if False:",
    ),
    Safeguard(
        "strays are aborted",
        "endings", "find_strays",
        "for each in strays(state, generation, opened)",
        "for each in ()",
    ),
)  # fmt: skip
ENOUGH: Final = 6000


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.what.replace(" ", "-"))
def test_no_safeguard_can_be_left_out(safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch) -> None:
    _take_away(safeguard, monkeypatch)
    if safeguard.time_outs:
        more_than_usual = _wrong_with_time_outs(HISTORIES)
        monkeypatch.undo()
        logging.disable(logging.WARNING)
        assert more_than_usual > 2 * _wrong_with_time_outs(HISTORIES) + 1
        return
    assert any(simulate(seed) is not None for seed in range(ENOUGH)), f"nobody noticed in {ENOUGH} histories"


def _wrong_with_time_outs(histories: int) -> int:
    return sum(simulate(seed, time_outs=True) is not None for seed in range(histories))


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
        if name.startswith(_SINK) and vars(known).get(safeguard.function) is original:
            monkeypatch.setattr(known, safeguard.function, scope[safeguard.function])
    if owner is not module:
        monkeypatch.setattr(owner, safeguard.function, scope[safeguard.function])


def test_the_model_is_the_port() -> None:
    """The model has what the protocol asks for, and nothing of it is missing."""
    from spark_connector.sink.sink_broker import SinkBroker

    asked = {name for name, _ in inspect.getmembers(SinkBroker, inspect.isfunction) if not name.startswith("_")}
    assert asked <= {name for name, _ in inspect.getmembers(ModelBroker, inspect.isfunction)}
