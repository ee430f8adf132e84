"""What a consumer sees of a fetch, against logs whose truth is known."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.clients.consumer.completed_fetch import CompletedFetch
from oncelog.protocol.messages.fetch import AbortedTransaction
from oncelog.protocol.records.control_records import build_end_txn_marker
from oncelog.protocol.records.record_batch import NewRecord, build_batch, read_header
from tests.stored_batch import stored
from tests.unit.clients.consumer.fetched import completed

PRODUCERS = [10, 11, 12]
NOT_TRANSACTIONAL = 99


@dataclass
class Log:
    """A log that knows which of its values were committed."""

    batches: list[bytes] = field(default_factory=list)
    offset: int = 0
    open: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    aborted: list[tuple[AbortedTransaction, int]] = field(default_factory=list)
    """With the offset of the marker."""

    def write(self, producer: int, count: int) -> None:
        transactional = producer != NOT_TRANSACTIONAL
        values = list(range(self.offset, self.offset + count))
        if transactional:
            self.open.setdefault(producer, (self.offset, []))[1].extend(values)
        else:
            self.committed |= set(values)
        records = [NewRecord(0, None, str(value).encode()) for value in values]
        batch = stored(
            build_batch(
                records, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=transactional
            ),
            base_offset=self.offset,
        )
        self._append(batch, count)

    def end(self, producer: int, commit: bool) -> None:
        first, values = self.open.pop(producer, (None, []))
        if first is None:
            return
        if commit:
            self.committed |= set(values)
        else:
            self.aborted.append((AbortedTransaction(producer_id=producer, first_offset=first), self.offset))
        marker = stored(
            build_end_txn_marker(
                producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=0, timestamp=0
            ),
            base_offset=self.offset,
        )
        self._append(marker, 1)

    def _append(self, batch: bytearray, count: int) -> None:
        self.batches.append(bytes(batch))
        self.offset += count

    def fetch(self, skipped: int) -> tuple[bytes, list[AbortedTransaction], int]:
        """The log without its first batches, and the aborted transactions that overlap what is left."""
        data = b"".join(self.batches[skipped:])
        start = read_header(data).base_offset if data else self.offset
        return data, [transaction for transaction, marker in self.aborted if marker >= start], start


events = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([*PRODUCERS, NOT_TRANSACTIONAL]), st.integers(1, 3)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from(PRODUCERS), st.just(0)),
)


def log_of(schedule: list[tuple[str, int, int]]) -> Log:
    log = Log()
    for what, producer, count in schedule:
        if what == "write":
            log.write(producer, count)
        else:
            log.end(producer, what == "commit")
    for producer in PRODUCERS:
        log.end(producer, commit=False)
    return log


def values_seen(data: bytes, aborted: list[AbortedTransaction] | None) -> list[int]:
    fetch = fetched(data, aborted)
    return [int(record.value or b"") for record in fetch.take(1000)]


def fetched(data: bytes, aborted: list[AbortedTransaction] | None) -> CompletedFetch:
    start = read_header(data).base_offset if data else 0
    return completed(start, data, aborted=aborted or ())


@settings(max_examples=150)
@given(st.lists(events, max_size=30), st.integers(0, 30), st.randoms(use_true_random=False))
def test_exactly_the_committed_records_are_seen(
    schedule: list[tuple[str, int, int]], skipped: int, rng: object
) -> None:
    log = log_of(schedule)
    data, aborted, start = log.fetch(min(skipped, len(log.batches)))
    rng.shuffle(aborted)  # type: ignore[attr-defined]  # Brokers sort the list; a client need not rely on it.
    assert values_seen(data, aborted) == sorted(value for value in log.committed if value >= start)


@settings(max_examples=50)
@given(st.lists(events, max_size=30))
def test_read_uncommitted_returns_everything_but_markers(schedule: list[tuple[str, int, int]]) -> None:
    log = log_of(schedule)
    data, _, _ = log.fetch(0)
    markers = {read_header(batch).base_offset for batch in log.batches if read_header(batch).is_control}
    assert values_seen(data, None) == [offset for offset in range(log.offset) if offset not in markers]


def test_producer_that_aborts_and_then_commits_has_only_committed_records_seen() -> None:
    log = Log()
    log.write(10, 2)
    log.end(10, commit=False)
    log.write(10, 2)
    log.end(10, commit=True)
    data, aborted, _ = log.fetch(0)
    assert values_seen(data, aborted) == [3, 4]


def test_records_of_another_producer_inside_an_aborted_range_are_seen() -> None:
    log = Log()
    log.write(10, 1)
    log.write(11, 1)
    log.write(NOT_TRANSACTIONAL, 1)
    log.end(11, commit=True)
    log.end(10, commit=False)
    data, aborted, _ = log.fetch(0)
    assert values_seen(data, aborted) == [1, 2]


def test_positions_pass_what_is_not_seen() -> None:
    log = Log()
    log.write(10, 2)
    log.end(10, commit=False)
    data, aborted, _ = log.fetch(0)
    fetch = fetched(data, aborted)
    assert fetch.take(1) == []
    assert fetch.position == fetch.next_offset == 3


@pytest.mark.parametrize("cut", [1, 30, 61])
def test_cut_off_batch_is_left_for_the_next_fetch(cut: int) -> None:
    log = Log()
    log.write(NOT_TRANSACTIONAL, 1)
    log.write(NOT_TRANSACTIONAL, 1)
    data, aborted, _ = log.fetch(0)
    assert values_seen(data[:-cut], aborted) == [0]
