"""The checker of the experiment finds what it is there to find."""

from tests.interop.late_frames.verdict import Observation, Verdict, judge
from tests.interop.late_frames.workload import Outcome, Phase, Transaction, producers_that_gave_up

COMMITTED = Transaction(0, 0, True, (Phase(0, ("0/0/0/0",)), Phase(1, ("0/0/1/0",))), commits_offset=True)
ABORTED = Transaction(0, 1, False, (Phase(0, ("0/1/0/0",)),), commits_offset=True)
BOTH = [(COMMITTED, Outcome.COMMITTED), (ABORTED, Outcome.ABORTED)]
WRITTEN = {0: ["0/0/0/0", "0/1/0/0"], 1: ["0/0/1/0"]}


def found(
    committed: dict[int, list[str]], *, offset: int = COMMITTED.offset, undecided: tuple[str, ...] = ()
) -> dict[str, int]:
    observed = Observation(committed=committed, uncommitted=WRITTEN, offsets={0: offset}, undecided=undecided)
    verdict = judge(BOTH, observed)
    return {name: count for name, count in verdict.counts().items() if count}


def test_verdict_of_committed_records_alone_is_clean() -> None:
    verdict = judge(
        BOTH, Observation(committed={0: ["0/0/0/0"], 1: ["0/0/1/0"]}, uncommitted=WRITTEN, offsets={0: 1}, undecided=())
    )
    assert verdict.is_clean
    assert verdict == Verdict()


def test_committed_transaction_seen_in_part_is_torn() -> None:
    assert found({0: ["0/0/0/0"], 1: []}) == {"torn": 1}


def test_offset_of_another_transaction_than_the_last_committed_is_torn() -> None:
    assert found({0: ["0/0/0/0"], 1: ["0/0/1/0"]}, offset=ABORTED.offset) == {"torn": 1}


def test_committed_transaction_of_which_nothing_is_seen_is_lost() -> None:
    assert found({0: [], 1: []}) == {"lost": 1}


def test_aborted_record_that_is_seen_is_a_violation() -> None:
    assert found({0: ["0/0/0/0", "0/1/0/0"], 1: ["0/0/1/0"]}) == {"aborted_but_visible": 1}


def test_record_that_is_seen_twice_is_duplicated() -> None:
    assert found({0: ["0/0/0/0", "0/0/0/0"], 1: ["0/0/1/0"]}) == {"duplicated": 1}


def test_record_written_twice_and_committed_once_is_duplicated() -> None:
    twice = {0: [*WRITTEN[0], "0/0/0/0"], 1: WRITTEN[1]}
    observed = Observation(committed={0: ["0/0/0/0"], 1: ["0/0/1/0"]}, uncommitted=twice, offsets={0: 1}, undecided=())
    assert judge(BOTH, observed).counts()["duplicated"] == 1


def test_transaction_of_unknown_outcome_is_seen_whole_or_not_at_all() -> None:
    unknown = [(COMMITTED, Outcome.COMMIT_FAILED)]
    for visible, torn in (([], 0), (["0/0/0/0", "0/0/1/0"], 0), (["0/0/1/0"], 1)):
        offsets = {0: COMMITTED.offset} if visible else {}
        observed = Observation(committed={0: visible}, uncommitted=WRITTEN, offsets=offsets, undecided=())
        assert judge(unknown, observed).counts()["torn"] == torn


def test_unfinished_abort_shows_no_record() -> None:
    observed = Observation(committed={0: ["0/1/0/0"]}, uncommitted=WRITTEN, offsets={0: 1}, undecided=())
    assert judge([(ABORTED, Outcome.ABORT_FAILED)], observed).counts()["aborted_but_visible"] == 1


def test_records_of_a_producer_keep_their_order_in_a_partition() -> None:
    first, then = (Transaction(0, number, True, (Phase(0, (f"0/{number}/0/0",)),)) for number in (2, 10))
    ended = [(first, Outcome.COMMITTED), (then, Outcome.COMMITTED)]
    for values, reordered in ((["0/2/0/0", "0/10/0/0"], 0), (["0/10/0/0", "0/2/0/0"], 1)):
        observed = Observation(committed={0: values}, uncommitted={0: values}, offsets={0: 1}, undecided=())
        assert judge(ended, observed).counts()["reordered"] == reordered


def test_transaction_that_no_client_ended_hangs() -> None:
    assert found({0: ["0/0/0/0"], 1: ["0/0/1/0"]}, undecided=("topic-0 1 < 2",)) == {"hanging": 1}


def test_producer_whose_last_transaction_failed_gave_up() -> None:
    other = Transaction(1, 0, True, ())
    assert producers_that_gave_up([*BOTH, (other, Outcome.COMMIT_FAILED)]) == {1}
    assert producers_that_gave_up([(COMMITTED, Outcome.ABORT_FAILED), (ABORTED, Outcome.ABORTED)]) == set()
