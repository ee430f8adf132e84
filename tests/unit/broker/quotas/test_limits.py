"""Which limit holds for a client, against the order of precedence written out."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.quotas.limits import Limit, Limits
from oncelog.protocol.client_quotas import DEFAULT, EntityName

NAMES = ("a", "b", "")
PARTS: tuple[EntityName | None, ...] = ("a", "b", DEFAULT, None)
ENTITIES = [(user, client) for user in PARTS for client in PARTS if (user, client) != (None, None)]

quotas = st.dictionaries(st.sampled_from(ENTITIES), st.integers(1, 9))


def written_out(limits: dict[tuple[EntityName | None, EntityName | None], int], user: str, client: str) -> Limit | None:
    """The list of the documentation, from top to bottom."""
    for entity, owner in [
        ((user, client), (user, client)),
        ((user, DEFAULT), (user, client)),
        ((user, None), (user, None)),
        ((DEFAULT, client), (user, client)),
        ((DEFAULT, DEFAULT), (user, client)),
        ((DEFAULT, None), (user, None)),
        ((None, client), (None, client)),
        ((None, DEFAULT), (None, client)),
    ]:
        if entity in limits:
            return Limit(owner, limits[entity])
    return None


@given(quotas, st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_limit_of_a_client_is_the_first_of_the_list(
    found: dict[tuple[EntityName | None, EntityName | None], int], user: str, client: str
) -> None:
    limits = Limits()
    for (of_user, of_client), value in found.items():
        limits.set(of_user, of_client, value)
    assert limits.find(user, client) == written_out(found, user, client)
    assert bool(limits) == bool(found)


@given(quotas, st.sampled_from(ENTITIES))
def test_limit_that_is_taken_away_is_as_if_it_had_never_been(
    found: dict[tuple[EntityName | None, EntityName | None], int], gone: tuple[EntityName | None, EntityName | None]
) -> None:
    limits = Limits()
    for (of_user, of_client), value in found.items():
        limits.set(of_user, of_client, value)
    limits.set(*gone, None)
    left = {entity: value for entity, value in found.items() if entity != gone}
    for user in NAMES:
        for client in NAMES:
            assert limits.find(user, client) == written_out(left, user, client)
