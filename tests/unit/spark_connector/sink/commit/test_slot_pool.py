"""Slots of one process, and of those that go on under its name: none is used while its transaction may be open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark_connector.sink.commit.sink_errors import SupersededTask
from oncelog.spark_connector.sink.commit.slot_pool import SlotPool


def taken(slots: SlotPool, batch: int, generation: int = 1, query: str = "q", sink: str = "s") -> int:
    """A slot whose transaction has begun."""
    slot = slots.take(sink, generation, query, batch)
    slots.begun(sink, generation, slot)
    return slot


class Kept:
    """What a process leaves to the next one of its name."""

    def __init__(self) -> None:
        self.text = ""

    def process(self) -> SlotPool:
        return SlotPool("p", self.text, self._keep)

    def _keep(self, text: str) -> None:
        self.text = text


def test_slot_is_used_once_in_a_batch_and_again_in_the_next() -> None:
    slots = SlotPool("p")
    assert [taken(slots, batch) for batch in (0, 0, 1, 1, 1)] == [0, 1, 0, 1, 2]
    assert taken(slots, 0, sink="other") == 0
    assert taken(slots, 1, generation=2) == 0
    assert taken(slots, 0, generation=2, query="a query that begins anew") == 0


def test_task_of_an_earlier_batch_gets_no_slot() -> None:
    slots = SlotPool("p")
    taken(slots, 5)
    with pytest.raises(SupersededTask, match="batch 4 of sink s is over"):
        taken(slots, 4)
    taken(slots, 4, generation=2)
    with pytest.raises(SupersededTask):
        taken(slots, 5)


def test_slot_without_a_response_is_never_used_again() -> None:
    slots = SlotPool("p")
    assert slots.take("s", 1, "q", 0) == 0
    assert [taken(slots, batch) for batch in (0, 1, 1, 2)] == [1, 1, 2, 1]


def test_next_process_uses_the_slots_of_earlier_batches_again() -> None:
    kept = Kept()
    assert [taken(kept.process(), batch) for batch in range(50)] == [0] * 50


def test_next_process_skips_slots_that_may_be_open() -> None:
    """``spark.python.worker.reuse=false`` has a process for each task of a batch."""
    kept = Kept()
    assert [taken(kept.process(), 3) for _ in range(3)] == [0, 1, 2]
    assert taken(kept.process(), 2) == 3, "a late task of a batch before"
    assert taken(kept.process(), 3) == 4
    assert taken(kept.process(), 4) == 0


def test_next_process_skips_slots_without_a_response() -> None:
    kept = Kept()
    kept.process().take("s", 1, "q", 0)
    assert [taken(kept.process(), batch) for batch in (1, 2)] == [1, 1]
    assert taken(kept.process(), 3, generation=2) == 0
    assert '"unanswered":[]' in kept.text, "what is of no use any more is not kept"


def test_next_process_after_a_new_state_topic_gets_slots() -> None:
    kept = Kept()
    taken(kept.process(), 100, generation=7)
    assert taken(kept.process(), 0, generation=1) == 0


def test_kept_state_of_many_sinks_is_bounded() -> None:
    kept = Kept()
    slots = kept.process()
    for number in range(1500):
        taken(slots, 0, sink=f"sink-{number}")
    assert 900 < kept.text.count("sink-") <= 1000


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=30))
def test_slots_of_one_batch_are_all_different(steps: list[tuple[int, bool, bool]]) -> None:
    """Whichever processes of one name its tasks are in, and whether they end in the middle."""
    kept, batch = Kept(), 0
    slots, used, unanswered = kept.process(), set[int](), set[int]()
    for forward, has_response, ends in steps:
        if forward:
            batch += 1
            used.clear()
        slot = slots.take("s", 1, "q", batch)
        assert slot not in used | unanswered
        used.add(slot)
        if has_response:
            slots.begun("s", 1, slot)
        else:
            unanswered.add(slot)
        if ends:
            slots = kept.process()
