"""Every request in every state, against a table written by hand; then what no table says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.broker.tools.txn_states import VERSIONS, format_requests, format_states
from oncelog.coordinator.transaction.state import (
    LAST_LIVE_EPOCH,
    MAX_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Missing,
    ProducerIdAndEpoch,
    Transaction,
    TransactionMetadata,
    decide_add_partitions,
    decide_completion,
    decide_end_txn,
    decide_expiration,
    decide_init_producer_id,
    decide_timeout,
    first_metadata,
    verify_partitions,
)
from oncelog.coordinator.transaction.transaction_state import (
    PERSISTED_STATES,
    PREPARED_STATES,
    TRANSITIONS,
    TransactionState,
)
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.topic_partition import TopicPartition

PRODUCER = ProducerIdAndEpoch(4000, 7)
NEW_ID = 4001
NOW = 1_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 500_000
IN = frozenset({TopicPartition("orders", 0)})
OUT = frozenset({TopicPartition("orders", 1)})

SHORT = {
    "FENCED": ErrorCode.PRODUCER_FENCED,
    "MAPPING": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "BUSY": ErrorCode.CONCURRENT_TRANSACTIONS,
    "STATE": ErrorCode.INVALID_TXN_STATE,
    "done": ErrorCode.NONE,
    "id?": Missing.PRODUCER_ID,
    "-": None,
}
LABELS = {state.label: state for state in TransactionState}

# Who asks: the present producer, one with an epoch before or after it, or one with another producer id.
RELATIONS = {
    "": PRODUCER,
    "older": ProducerIdAndEpoch(4000, 6),
    "newer": ProducerIdAndEpoch(4000, 8),
    "other": ProducerIdAndEpoch(3999, 7),
}

Request = Callable[[Transaction, ProducerIdAndEpoch], object]
REQUESTS: dict[str, Request] = {
    "init new": lambda txn, who: decide_init_producer_id(txn, TIMEOUT_MS, None, NO_PRODUCER_ID, NOW),
    "init": lambda txn, who: decide_init_producer_id(txn, TIMEOUT_MS, who, NO_PRODUCER_ID, NOW),
    "add": lambda txn, who: decide_add_partitions(txn, who, OUT, NOW),
    "add known": lambda txn, who: decide_add_partitions(txn, who, IN, NOW),
    "commit": lambda txn, who: decide_end_txn(txn, who, True, NOW),
    "abort": lambda txn, who: decide_end_txn(txn, who, False, NOW),
    "timeout": lambda txn, who: decide_timeout(txn, NOW),
    "expire": lambda txn, who: decide_expiration(txn, EXPIRATION_MS, NOW),
}
WITHOUT_PRODUCER = {"init new", "timeout", "expire"}

# "Ongoing": that is the transition. "+1": with the next epoch.
IDLE_TABLE = """
                 Empty        Ongoing          PrepareCommit  PrepareAbort  CompleteCommit  CompleteAbort
init new       | Empty+1    | PrepareAbort+1 | BUSY         | BUSY        | Empty+1       | Empty+1
init           | Empty+1    | PrepareAbort+1 | BUSY         | BUSY        | Empty+1       | Empty+1
init older     | FENCED     | FENCED         | BUSY         | BUSY        | FENCED        | FENCED
init newer     | FENCED     | FENCED         | BUSY         | BUSY        | FENCED        | FENCED
init other     | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
add            | Ongoing    | Ongoing        | BUSY         | BUSY        | Ongoing       | Ongoing
add older      | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
add newer      | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
add other      | MAPPING    | MAPPING        | MAPPING      | MAPPING     | MAPPING       | MAPPING
add known      | Ongoing    | done           | BUSY         | BUSY        | Ongoing       | Ongoing
add known older| FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
add known newer| FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
add known other| MAPPING    | MAPPING        | MAPPING      | MAPPING     | MAPPING       | MAPPING
commit         | STATE      | PrepareCommit  | BUSY         | STATE       | done          | STATE
commit older   | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
commit newer   | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
commit other   | MAPPING    | MAPPING        | MAPPING      | MAPPING     | MAPPING       | MAPPING
abort          | STATE      | PrepareAbort   | STATE        | BUSY        | STATE         | done
abort older    | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
abort newer    | FENCED     | FENCED         | FENCED       | FENCED      | FENCED        | FENCED
abort other    | MAPPING    | MAPPING        | MAPPING      | MAPPING     | MAPPING       | MAPPING
timeout        | -          | PrepareAbort+1 | -            | -           | -             | -
expire         | Dead       | -              | -            | -           | Dead          | Dead
"""

# While a transition is pending, the state and the transition do not matter.
PENDING_TABLE = """
                 any state, any transition
init new       | BUSY
init           | BUSY
init older     | BUSY
init newer     | BUSY
init other     | BUSY
add            | BUSY
add older      | BUSY
add newer      | BUSY
add other      | BUSY
add known      | BUSY
add known older| BUSY
add known newer| BUSY
add known other| BUSY
commit         | BUSY
commit older   | FENCED
commit newer   | FENCED
commit other   | MAPPING
abort          | BUSY
abort older    | FENCED
abort newer    | FENCED
abort other    | MAPPING
timeout        | -
expire         | -
"""

# The present epoch, and what becomes of it. "new": a new producer id with epoch 0. "id?": no new id was at hand.
EPOCH_TABLE = """
                   32765            32766            32767
init new         | 32766          | id?            | id?
init new, id     | 32766          | new            | new
init             | 32766          | id?            | id?
init, id         | 32766          | new            | new
fence            | 32766          | 32767          | 32767
"""


def sample(
    state: TransactionState, *, pending: TransactionState | None = None, epoch: int = PRODUCER.epoch
) -> Transaction:
    is_open = state is TransactionState.ONGOING or state in PREPARED_STATES
    metadata = TransactionMetadata(
        producer_id=PRODUCER.id,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=IN if is_open else NO_PARTITIONS,
        start_ms=0 if is_open else -1,
        last_update_ms=0,
    )
    txn = Transaction("id", metadata)
    if pending is not None:
        txn.begin(metadata._replace(state=pending))
    return txn


def rows(table: str) -> list[tuple[str, list[str]]]:
    lines = [line.split("|") for line in table.strip("\n").split("\n")[1:]]
    return [(line[0].strip(), [cell.strip() for cell in line[1:]]) for line in lines]


def parse_request(name: str) -> tuple[Request, ProducerIdAndEpoch]:
    request, _, last = name.rpartition(" ")
    if last in RELATIONS and request in REQUESTS:
        return REQUESTS[request], RELATIONS[last]
    return REQUESTS[name], PRODUCER


def shorten(before: TransactionMetadata, result: object) -> str:
    if isinstance(result, TransactionMetadata):
        bump = result.producer_epoch - before.producer_epoch
        assert result.producer_id == before.producer_id
        return result.state.label + (f"+{bump}" if bump else "")
    return next(short for short, meaning in SHORT.items() if meaning is result)


IDLE_CASES = [
    (name, label, cells[column])
    for name, cells in rows(IDLE_TABLE)
    for column, label in enumerate(IDLE_TABLE.strip("\n").split("\n")[0].split())
]


@pytest.mark.parametrize(("name", "label", "expected"), IDLE_CASES)
def test_request_in_state(name: str, label: str, expected: str) -> None:
    """B28: EndTxn from a client needs the exact epoch: its rows with an older or a newer one."""
    txn = sample(LABELS[label])
    before = txn.metadata
    request, who = parse_request(name)
    assert shorten(before, request(txn, who)) == expected
    assert txn.metadata is before
    assert txn.pending is None


PENDING_CASES = [
    (name, state, following, cells[0])
    for name, cells in rows(PENDING_TABLE)
    for state in sorted(PERSISTED_STATES, key=lambda state: int(state.value))
    for following in sorted(TRANSITIONS[state], key=lambda state: int(state.value))
]


@pytest.mark.parametrize(("name", "state", "following", "expected"), PENDING_CASES)
def test_request_while_a_transition_is_pending(
    name: str, state: TransactionState, following: TransactionState, expected: str
) -> None:
    """B20: a request that meets a pending completion gets CONCURRENT_TRANSACTIONS and changes nothing."""
    txn = sample(state, pending=following)
    before, pending = txn.metadata, txn.pending
    request, who = parse_request(name)
    assert shorten(before, request(txn, who)) == expected
    assert txn.metadata is before
    assert txn.pending is pending


def test_tables_have_every_request_in_every_state() -> None:
    every = {f"{name} {who}".strip() for name in REQUESTS for who in ([""] if name in WITHOUT_PRODUCER else RELATIONS)}
    assert {name for name, _, _ in IDLE_CASES} == every
    assert {name for name, _ in rows(PENDING_TABLE)} == every
    assert {LABELS[label] for _, label, _ in IDLE_CASES} == PERSISTED_STATES


@pytest.mark.parametrize(
    ("name", "epoch", "expected"),
    [
        (name, int(epoch), cell)
        for name, cells in rows(EPOCH_TABLE)
        for epoch, cell in zip((32765, 32766, 32767), cells, strict=True)
    ],
)
def test_epochs_run_out(name: str, epoch: int, expected: str) -> None:
    """B23: no producer ever gets an epoch above 32,766; crossing it takes a new producer id, once."""
    request, _, with_id = name.partition(",")
    if request == "fence":
        result: object = decide_timeout(sample(TransactionState.ONGOING, epoch=epoch), NOW)
    else:
        who = ProducerIdAndEpoch(PRODUCER.id, epoch) if request == "init" else None
        new_id = NEW_ID if with_id else NO_PRODUCER_ID
        result = decide_init_producer_id(sample(TransactionState.EMPTY, epoch=epoch), TIMEOUT_MS, who, new_id, NOW)
    if expected == "id?":
        assert result is Missing.PRODUCER_ID
        return
    assert isinstance(result, TransactionMetadata)
    if expected == "new":
        assert result.producer == ProducerIdAndEpoch(NEW_ID, 0)
        assert result.previous_producer_id == PRODUCER.id
    else:
        assert result.producer == ProducerIdAndEpoch(PRODUCER.id, int(expected))
    if request != "fence":
        assert result.producer_epoch <= LAST_LIVE_EPOCH


def test_fenced_zombie_with_the_last_epoch_does_not_get_a_new_producer_id() -> None:
    """B23: only the present producer, or a new one, rotates the producer id."""
    txn = sample(TransactionState.COMPLETE_ABORT, epoch=MAX_EPOCH)
    zombie = ProducerIdAndEpoch(PRODUCER.id, LAST_LIVE_EPOCH)
    assert decide_init_producer_id(txn, TIMEOUT_MS, zombie, NEW_ID, NOW) is ErrorCode.PRODUCER_FENCED


# The rules of KIP-360: a producer goes on with a bumped epoch, and may ask twice.


def init(
    txn: Transaction, expected: ProducerIdAndEpoch | None, new_id: int = NO_PRODUCER_ID
) -> ProducerIdAndEpoch | ErrorCode:
    """Decide and apply."""
    decision = decide_init_producer_id(txn, TIMEOUT_MS, expected, new_id, NOW)
    if isinstance(decision, ErrorCode):
        return decision
    assert isinstance(decision, TransactionMetadata)
    txn.begin(decision)
    return txn.apply().producer


def test_repeated_bump_gives_the_same_epoch() -> None:
    txn = sample(TransactionState.COMPLETE_COMMIT)
    bumped = ProducerIdAndEpoch(PRODUCER.id, PRODUCER.epoch + 1)
    assert init(txn, PRODUCER) == bumped
    assert init(txn, PRODUCER) == bumped
    assert init(txn, PRODUCER) == bumped


def test_another_producer_in_between_fences_the_repetition() -> None:
    txn = sample(TransactionState.COMPLETE_COMMIT)
    init(txn, PRODUCER)
    assert init(txn, None) == ProducerIdAndEpoch(PRODUCER.id, PRODUCER.epoch + 2)
    assert init(txn, PRODUCER) is ErrorCode.PRODUCER_FENCED


def test_repeated_rotation_gives_the_same_producer_id() -> None:
    last = ProducerIdAndEpoch(PRODUCER.id, LAST_LIVE_EPOCH)
    txn = sample(TransactionState.EMPTY, epoch=LAST_LIVE_EPOCH)
    assert init(txn, last, NEW_ID) == ProducerIdAndEpoch(NEW_ID, 0)
    assert init(txn, last, NEW_ID + 1) == ProducerIdAndEpoch(NEW_ID, 0)
    assert init(txn, ProducerIdAndEpoch(NEW_ID, 0)) == ProducerIdAndEpoch(NEW_ID, 1)
    assert init(txn, last, NEW_ID + 1) is ErrorCode.PRODUCER_FENCED


def test_id_that_expired_takes_back_its_producer() -> None:
    """The producer names an id and epoch that nobody knows any more; it continues with a new one."""
    txn = Transaction("id", first_metadata(NEW_ID, TIMEOUT_MS, NOW))
    assert init(txn, PRODUCER) == ProducerIdAndEpoch(NEW_ID, 0)


def test_new_producer_takes_over_the_timeout() -> None:
    txn = sample(TransactionState.COMPLETE_ABORT)
    decision = decide_init_producer_id(txn, 1234, None, NO_PRODUCER_ID, NOW)
    assert isinstance(decision, TransactionMetadata)
    assert (decision.timeout_ms, decision.start_ms, decision.last_update_ms) == (1234, -1, NOW)


# Fencing


@pytest.mark.parametrize("because", ["a new producer", "the time-out"])
def test_abort_of_an_open_transaction_bumps_the_epoch_in_its_own_record(because: str) -> None:
    """B29: one transition both aborts and fences; there is no state between the two in the log."""
    txn = sample(TransactionState.ONGOING)
    if because == "the time-out":
        decision: object = decide_timeout(txn, NOW)
    else:
        decision = decide_init_producer_id(txn, TIMEOUT_MS, None, NO_PRODUCER_ID, NOW)
    assert isinstance(decision, TransactionMetadata)
    assert decision.state is TransactionState.PREPARE_ABORT
    assert decision.producer_epoch == PRODUCER.epoch + 1
    assert decision.last_producer_epoch == NO_PRODUCER_EPOCH
    assert decision.partitions == IN


def test_fence_that_was_not_written_is_decided_again_with_the_same_epoch() -> None:
    """B27: a failed append of a fence does not bump the epoch twice."""
    txn = sample(TransactionState.ONGOING)
    first = decide_timeout(txn, NOW)
    assert isinstance(first, TransactionMetadata)
    txn.begin(first)
    txn.withdraw()
    assert decide_timeout(txn, NOW) == first


# Partitions and times


def test_partitions_gather_until_the_transaction_is_complete() -> None:
    txn = sample(TransactionState.COMPLETE_COMMIT)
    for partitions, start in ((IN, NOW), (OUT, NOW)):
        decision = decide_add_partitions(txn, PRODUCER, partitions, NOW if partitions is IN else NOW + 50)
        assert isinstance(decision, TransactionMetadata)
        txn.begin(decision)
        assert txn.apply().start_ms == start
    assert txn.metadata.partitions == IN | OUT
    assert txn.metadata.last_update_ms == NOW + 50
    prepared = decide_end_txn(txn, PRODUCER, True, NOW)
    assert isinstance(prepared, TransactionMetadata)
    assert isinstance(prepared, TransactionMetadata)
    txn.begin(prepared)
    assert txn.apply().partitions == IN | OUT
    txn.begin(decide_completion(txn, NOW))
    txn.apply()
    assert txn.metadata.state is TransactionState.COMPLETE_COMMIT
    assert txn.metadata.partitions == NO_PARTITIONS


@pytest.mark.parametrize(("age_ms", "aborts"), [(TIMEOUT_MS, False), (TIMEOUT_MS + 1, True)])
def test_transaction_may_last_as_long_as_its_producer_said(age_ms: int, aborts: bool) -> None:
    assert (decide_timeout(sample(TransactionState.ONGOING), age_ms) is not None) is aborts


@pytest.mark.parametrize(("age_ms", "expires"), [(EXPIRATION_MS - 1, False), (EXPIRATION_MS, True)])
def test_unused_id_is_forgotten_after_its_time(age_ms: int, expires: bool) -> None:
    decision = decide_expiration(sample(TransactionState.COMPLETE_COMMIT), EXPIRATION_MS, age_ms)
    assert (decision is not None) is expires


@pytest.mark.parametrize("state", [TransactionState.ONGOING, *sorted(PREPARED_STATES, key=str)])
def test_id_with_an_open_transaction_is_never_forgotten(state: TransactionState) -> None:
    """B33: however long ago its last update was."""
    assert decide_expiration(sample(state), EXPIRATION_MS, 10**15) is None


# Verification


def test_verification_reads_what_is_durable_also_while_a_transition_is_pending() -> None:
    """B03: a pending AddPartitions does not turn away batches of partitions that were added before."""
    txn = sample(TransactionState.ONGOING, pending=TransactionState.ONGOING)
    verdict = verify_partitions(txn, PRODUCER, IN | OUT)
    assert verdict == {
        TopicPartition("orders", 0): ErrorCode.NONE,
        TopicPartition("orders", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }


@pytest.mark.parametrize(
    ("state", "who", "expected"),
    [
        (TransactionState.PREPARE_COMMIT, "", ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.PREPARE_ABORT, "", ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.ONGOING, "older", ErrorCode.PRODUCER_FENCED),
        (TransactionState.ONGOING, "newer", ErrorCode.PRODUCER_FENCED),
        (TransactionState.ONGOING, "other", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_verification_refuses_a_transaction_that_cannot_grow(
    state: TransactionState, who: str, expected: ErrorCode
) -> None:
    assert verify_partitions(sample(state), RELATIONS[who], IN) is expected


@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT])
def test_verification_without_a_transaction_is_refused(state: TransactionState) -> None:
    assert verify_partitions(sample(state), PRODUCER, IN) == dict.fromkeys(IN, ErrorCode.TRANSACTION_ABORTABLE)


# The table of states


def test_decision_keeps_to_the_table_of_states() -> None:
    """Nothing but the table's transitions can begin."""
    for state in PERSISTED_STATES:
        for following in frozenset(TransactionState) - TRANSITIONS[state]:
            with pytest.raises(AssertionError):
                sample(state, pending=following)


def test_state_is_reachable_and_dead_alone_is_final() -> None:
    reachable = {TransactionState.EMPTY}
    while True:
        more = reachable.union(*(TRANSITIONS[state] for state in reachable))
        if more == reachable:
            break
        reachable = more
    assert reachable == set(TransactionState)
    assert [state for state in TransactionState if not TRANSITIONS[state]] == [TransactionState.DEAD]


@pytest.mark.parametrize("version", [1, 2])
def test_printed_tables_name_every_state_and_the_results(version: int) -> None:
    states, requests = format_states(), format_requests(version)
    assert all(f"{state.label} ({state.value}): {state.meaning}" in states for state in TransactionState)
    assert "→ Ongoing, PrepareCommit, PrepareAbort, PrepareEpochFence" in states
    assert requests.count("EndTxn commit ") == 2 * len(PERSISTED_STATES)
    assert "→ PrepareAbort (epoch +1)" in requests
    assert ("→ PrepareCommit (epoch +1)" in requests) is (version == 2)
    assert "Missing" not in requests
    assert "PRODUCER_ID" not in requests.replace("INVALID_PRODUCER_ID_MAPPING", "")


def test_page_on_the_states_shows_what_is_printed() -> None:
    """``oncelog txn states`` prints it anew."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "internals" / "transaction-states.md").read_text()
    for table in (format_states(), *map(format_requests, VERSIONS)):
        assert f"```text\n{table}\n```" in page
