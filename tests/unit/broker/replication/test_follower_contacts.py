import pytest

from oncelog.broker.replication.follower_contacts import WITHOUT_LIMIT, FollowerContacts

SILENCE_MS, CHECKS_MS = 2_000, 500
FOLLOWER, OTHER = 2, 3


def contacts(silence_ms: int = SILENCE_MS, fetch_wait_ms: int = 500) -> FollowerContacts:
    made = FollowerContacts()
    made.limit(silence_ms, fetch_wait_ms)
    return made


def check_until(followers: FollowerContacts, until_ms: int) -> frozenset[int]:
    """Look as often as is promised."""
    for now_ms in range(0, until_ms + 1, CHECKS_MS):
        followers.update_silent(now_ms, CHECKS_MS)
    return followers.silent


@pytest.mark.parametrize(("until_ms", "silent"), [(2_000, set()), (2_500, {FOLLOWER})])
def test_follower_without_fetches_for_the_limit_is_silent(until_ms: int, silent: set[int]) -> None:
    followers = contacts()
    followers.expect(FOLLOWER, 0)
    followers.expect(OTHER, 0)
    followers.note_contact(OTHER, 1_000)
    assert check_until(followers, until_ms) == silent


def test_broker_that_is_not_expected_is_not_silent() -> None:
    """B90: any client can say that it is a replica, also that it is this very broker."""
    followers = contacts()
    followers.note_contact(OTHER, 0)
    assert check_until(followers, 60_000) == set()


def test_silent_follower_that_fetches_again_is_not_silent() -> None:
    followers = contacts()
    followers.expect(FOLLOWER, 0)
    check_until(followers, 3_000)
    followers.note_contact(FOLLOWER, 3_100)
    assert followers.update_silent(3_500, CHECKS_MS)
    assert followers.silent == set()
    assert not followers.update_silent(4_000, CHECKS_MS)


def test_latest_contact_counts_in_any_order() -> None:
    """A response that a follower has had is older than a new connection of it."""
    followers = contacts()
    followers.expect(FOLLOWER, 0)
    followers.note_contact(FOLLOWER, 1_500)
    followers.note_contact(FOLLOWER, 1_000)
    assert check_until(followers, 3_500) == set()


def test_check_that_comes_late_changes_nothing() -> None:
    """B90: a leader that was stopped has heard nobody, and that is its own fault."""
    followers = contacts()
    followers.expect(FOLLOWER, 0)
    check_until(followers, 1_000)
    assert not followers.update_silent(9_000, CHECKS_MS)
    assert followers.silent == set()
    followers.update_silent(9_500, CHECKS_MS)
    assert followers.silent == {FOLLOWER}


def test_fetches_that_wait_long_are_no_silence() -> None:
    followers = contacts(fetch_wait_ms=5_000)
    followers.expect(FOLLOWER, 0)
    assert check_until(followers, 20_000) == set()
    assert check_until(followers, 20_500) == {FOLLOWER}


def test_follower_without_a_limit_is_never_silent() -> None:
    followers = contacts(WITHOUT_LIMIT)
    followers.expect(FOLLOWER, 0)
    assert check_until(followers, 60_000) == set()
