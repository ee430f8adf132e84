"""Whatever goes wrong, whenever: no record twice, none out of order, and every future done once, and truthfully.

A producer without sockets writes to a model of a broker through a wire that the test holds: requests are carried out,
refused, answered or lost in any order of events, connections break, and what was lost with them may still arrive.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from random import Random

from oncelog.clients.errors import DeliveryTimedOut, OutcomeUnknown
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.clients.producer.transaction_manager import MAYBE_WRITTEN
from oncelog.protocol.errors import ErrorCode
from tests.unit.clients.producer.broker_model import PartitionModel, refusal
from tests.unit.clients.producer.pure_producer import PureProducer, Request, Sent, Wire, partition_of

PARTITIONS = 2
MOST_IN_FLIGHT = 5
DELIVERY_SECONDS = 2.0

REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.MESSAGE_TOO_LARGE,
    *sorted(MAYBE_WRITTEN),
)

FAULTS = ("refuse", "carry out and deny", "lose", "carry out late", "wait")
STEPS = 200
SEEDS = 400


def script(seed: int, *, without: Collection[str] = ()) -> Iterator[tuple[str, object]]:
    """Steps at random, each kind as frequent as this seed has it; often some kinds of fault are missing."""
    rng = Random(seed)
    weights = {"send": 6.0, "request": 6.0, "carry out": 7.0, "respond": 7.0}
    weights |= {fault: rng.choice((0.0, 0.3, 1.0, 3.0)) for fault in FAULTS if fault not in without}
    waits = rng.choice(((0.01, 0.1), (0.1, 1.0), (0.5, 1.0)))
    for name in rng.choices(list(weights), list(weights.values()), k=STEPS):
        match name:
            case "send":
                yield name, rng.randrange(PARTITIONS)
            case "refuse":
                yield name, rng.choice(REFUSALS)
            case "carry out and deny":
                yield name, rng.choice(sorted(MAYBE_WRITTEN))
            case "wait":
                yield name, rng.choice(waits)
            case _:
                yield name, None


class World:
    """A producer, a wire and a broker."""

    def __init__(self, *, idempotent: bool = True, largest_batch: int = 1_000_000) -> None:
        self.config = ProducerConfig(
            bootstrap="x",
            enable_idempotence=idempotent,
            acks="all" if idempotent else "1",
            batch_bytes=512,
            linger_ms=0,
            delivery_timeout_ms=int(DELIVERY_SECONDS * 1000),
            request_timeout_ms=1000,
        )
        self.producer = PureProducer(self.config, PARTITIONS)
        self.partitions = [PartitionModel(largest_batch=largest_batch) for _ in range(PARTITIONS)]
        self.wire = Wire()

    def play(self, script: Iterable[tuple[str, object]]) -> None:
        for name, argument in script:
            match name, argument:
                case "send", int(partition):
                    self.send(partition)
                case "request", _:
                    self.request()
                case "carry out", _:
                    self.carry_out()
                case "respond", _:
                    self.respond()
                case "refuse", ErrorCode() as error:
                    self.refuse(error)
                case "carry out and deny", ErrorCode() as error:
                    self.carry_out_and_deny(error)
                case "lose", _:
                    self.lose()
                case "carry out late", _:
                    self.carry_out_late()
                case "wait", float(seconds):
                    self.producer.now += seconds
            self.producer.turn()

    def send(self, partition: int) -> None:
        self.producer.send(partition, b"%06d" % len(self.producer.sent) + bytes(150))

    def request(self) -> None:
        if len(self.wire.open) < MOST_IN_FLIGHT and (batches := self.producer.drain()):
            encoded = [bytes(batch.encode(self.config.codec)) for batch in batches]
            self.wire.open.append(Request(batches, encoded))

    def _next(self) -> Request | None:
        """The first request that the broker has not seen."""
        return next((request for request in self.wire.open if request.responses is None), None)

    def _carry_out(self, request: Request) -> None:
        request.responses = [self.partitions[partition_of(batch)].produce(data) for batch, data in request.parts()]

    def carry_out(self) -> None:
        if request := self._next():
            self._carry_out(request)

    def refuse(self, error: ErrorCode) -> None:
        if request := self._next():
            request.responses = [refusal(error) for _ in request.batches]

    def carry_out_and_deny(self, error: ErrorCode) -> None:
        if request := self._next():
            self._carry_out(request)
            assert request.responses is not None
            request.responses = [refusal(error) if not each.error_code else each for each in request.responses]

    def respond(self) -> None:
        if self.wire.open and self.wire.open[0].responses is not None:
            request = self.wire.open.popleft()
            assert request.responses is not None
            for batch, response in zip(request.batches, request.responses, strict=True):
                self.producer.delivery.handle_response(batch, response, self.producer.now)

    def lose(self) -> None:
        """The connection breaks; what the broker has not seen may sit in its socket's buffer."""
        lost, self.wire.open = self.wire.open, type(self.wire.open)()
        for request in lost:
            if request.responses is None:
                self.wire.late.append(request)
            for batch in request.batches:
                self.producer.delivery.handle_loss(batch, ErrorCode.NETWORK_EXCEPTION, self.producer.now)

    def carry_out_late(self) -> None:
        if self.wire.late:
            self._carry_out(self.wire.late.popleft())

    def heal(self) -> None:
        """No more faults: go on until nothing is under way."""
        for _ in range(500):
            if not self.producer.accumulator.incomplete and not self.wire.open:
                return
            self.play([("request", 0), ("carry out", 0), ("respond", 0), ("wait", 0.01)])
        raise AssertionError("batches are still under way")

    # What must hold

    def check(self, seed: int) -> None:
        producer = self.producer
        assert producer.accumulator.used_bytes == 0, seed
        assert [sent.fates for sent in producer.sent] == [1] * len(producer.sent), seed
        for partition in self.partitions:
            assert partition.log == sorted(partition.log), f"seed {seed}: records out of order"
            assert len(partition.log) == len(set(partition.log)), f"seed {seed}: a record twice"
        for sent in producer.sent:
            self._check_truth(sent, seed)

    def _check_truth(self, sent: Sent, seed: int) -> None:
        log = self.partitions[sent.partition].log
        error = sent.future.exception()
        if error is None:
            assert log[sent.future.result().offset] == sent.value, seed
            return
        is_in_doubt = isinstance(error, OutcomeUnknown) or (isinstance(error, DeliveryTimedOut) and error.maybe_written)
        if not is_in_doubt:
            assert sent.value not in log, f"seed {seed}: {error!r} of a record that is in the log"


def played(seed: int, world: World, *, without: Collection[str] = ()) -> World:
    try:
        world.play(script(seed, without=without))
        world.heal()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return world


def test_records_are_written_once_in_order_and_every_future_done_once() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = played(seed, World())
        world.check(seed)
        kinds.update(type(sent.future.exception()).__name__ for sent in world.producer.sent)
        kinds["bumped"] += world.producer.producer.epoch > 0
    for kind in ("NoneType", "BrokerRefused", "DeliveryTimedOut", "OutcomeUnknown", "bumped"):
        assert kinds[kind] > SEEDS / 20, kinds  # The scripts do reach what the safeguards are for.


def test_split_batches_keep_the_order() -> None:
    for seed in range(SEEDS // 2):
        played(seed, World(largest_batch=400)).check(seed)


def test_order_without_idempotence_is_kept() -> None:
    """Records can be there twice then: a retry is a new batch to the broker."""
    for seed in range(SEEDS // 2):
        world = played(seed, World(idempotent=False), without=("carry out late",))
        assert [sent.fates for sent in world.producer.sent] == [1] * len(world.producer.sent), seed
        for partition in world.partitions:
            firsts = list(dict.fromkeys(partition.log))
            assert firsts == sorted(firsts), seed


def test_producer_without_faults_fails_no_record() -> None:
    for seed in range(SEEDS // 4):
        world = played(seed, World(), without=FAULTS)
        world.check(seed)
        assert all(sent.future.exception() is None for sent in world.producer.sent), seed
        assert world.producer.producer.epoch == 0, seed
