"""The heap of deadlines says what a search through all of them would."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.group.sessions import Sessions

IDS = st.sampled_from("abcdef")
EVENTS = st.lists(
    st.tuples(st.sampled_from(("set", "set", "set", "clear", "due")), IDS, st.integers(0, 50)), max_size=300
)


@given(EVENTS)
def test_sessions_give_the_earliest_deadline_first(events: list[tuple[str, str, int]]) -> None:
    sessions, model = Sessions(), dict[str, int]()
    for event, member_id, when in events:
        match event:
            case "set":
                sessions.set(member_id, when)
                model[member_id] = when
            case "clear":
                sessions.clear(member_id)
                model.pop(member_id, None)
            case _:
                due = {each for each, deadline in model.items() if deadline <= when}
                taken = sessions.take_due(when)
                assert (set(taken), len(taken)) == (due, len(due))
                assert taken == sorted(taken, key=lambda each: model[each])
                for each in due:
                    del model[each]
        assert sessions.next() == min(model.values(), default=None)


def test_sessions_of_members_that_come_and_go_keep_no_entries() -> None:
    sessions = Sessions()
    for number in range(10_000):
        sessions.set(f"m{number}", 1_800.0)
        sessions.clear(f"m{number}")
    assert len(sessions._heap) < 100
