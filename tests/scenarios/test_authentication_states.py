"""Every API key in every state of authentication: 1,024 cells, with what Apache Kafka 4.3.1 does in each.

Kafka's behaviour was recorded live; the rules below say the same in a form that can be read. Where this broker differs,
``DIFFERENCES`` has what it does instead, and why.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tests.scenarios.sasl_states import SETTINGS, State, all_cells, all_outcomes, request_of
from tests.scenarios.stage import Stage, scenario

CLOSED: Final = "closed at once"
CLOSED_LATE: Final = "closed after the delay"
NONE: Final = "NONE at once, open"
NO_CODE: Final = "a response at once, open"
"""A response without an error code: it has one for each of its elements, and there are none."""
ILLEGAL: Final = "ILLEGAL_SASL_STATE after the delay, closed"
NO_CODE_ILLEGAL: Final = "a response after the delay, closed"

UNKNOWN_TO_KAFKA: Final = frozenset({4, 5, 6, 7, *range(93, 128)})
NOT_PARSABLE: Final = frozenset({29})
"""DescribeAcls: its fields' defaults describe no filter."""
FOR_CONTROLLERS: Final = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82})
"""Parsed by a broker of Kafka, and not served by it."""
CODES_IN_ELEMENTS: Final = frozenset(
    {0, 2, 8, 9, 10, 15, 19, 20, 21, 23, 27, 28, 30, 31, 32, 33, 34, 37, 42, 44, 49, 51, 61, 65, 69, 77, 83, 84, 85}
    | {86, 87, 89, 90}
)
TOKENS: Final = (38, 39, 40, 41)
"""Delegation tokens: what a user may do with its own needs no access control list."""
OPEN_TO_ALL: Final[Mapping[str, Collection[int]]] = {
    "NONE": (1, 3, 16, 18, 35, 43, 45, 46, 48, 50, 55, 57, 60, 66, 71, 74, 75),
    "INVALID_REQUEST": (22, 25, 26, 68, 72, 76, 78, 79, 88),
    "INVALID_GROUP_ID": (11, 12, 13, 47, 91, 92),
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": (38, 39, 40, 41),
    "ILLEGAL_SASL_STATE": (17, 36),
    "INCONSISTENT_CLUSTER_ID": (80, 81),
    "INCONSISTENT_GROUP_PROTOCOL": (14,),
    "BROKER_ID_NOT_REGISTERED": (64,),
}
"""The error codes of a client that may do everything."""
WITHOUT_ACLS: Final[Mapping[str, Collection[int]]] = {
    "NONE": (1, 3, 16, 18, 38, 41, 60, 66, 71),
    "INVALID_REQUEST": (72, 78, 79),
    "CLUSTER_AUTHORIZATION_FAILED": (24, 35, 43, 45, 46, 48, 50, 55, 57, 64, 74, 80, 81),
    "GROUP_AUTHORIZATION_FAILED": (11, 12, 13, 47, 68, 76, 88, 91, 92),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (22, 25, 26),
    "DELEGATION_TOKEN_NOT_FOUND": (39, 40),
    "ILLEGAL_SASL_STATE": (17, 36),
    "INCONSISTENT_GROUP_PROTOCOL": (14,),
}
"""The error codes of the recorded user, which had no access control lists."""


def kafkas_outcome(api_key: int, state: State) -> str:
    match state:
        case State.FIRST:
            return NONE if api_key in (17, 18) else CLOSED
        case State.GREETED:
            return NONE if api_key == 17 else CLOSED
        case State.TOKEN_DUE if api_key == 36:
            return NONE
        case State.TOKEN_DUE if api_key in UNKNOWN_TO_KAFKA | NOT_PARSABLE:
            return CLOSED
        case State.TOKEN_DUE:
            return NO_CODE_ILLEGAL if api_key in CODES_IN_ELEMENTS | {75} else ILLEGAL
        case State.RAW_TOKEN_DUE:
            return CLOSED_LATE
        case State.MECHANISM_REFUSED | State.LOGIN_REFUSED:
            return CLOSED
        case State.PLAINTEXT if api_key == 24:
            return "nothing"
        case State.PLAINTEXT:
            return _served(api_key, OPEN_TO_ALL)
        case State.AUTHENTICATED:
            return _served(api_key, WITHOUT_ACLS)


def _served(api_key: int, codes: Mapping[str, Collection[int]]) -> str:
    for code, api_keys in codes.items():
        if api_key in api_keys:
            return f"{code} at once, open"
    return NO_CODE if api_key in CODES_IN_ELEMENTS | {75} else CLOSED


class Difference(NamedTuple):
    """What this broker does in place of Kafka's outcome."""

    outcome: str
    reason: str


def difference(api_key: int, state: State) -> Difference | None:
    serves = state in (State.PLAINTEXT, State.AUTHENTICATED)
    if request_of(api_key) is None and (serves or state is State.TOKEN_DUE):
        return Difference(
            CLOSED, "the API is not served: its connection is closed, as Kafka does for its unserved ones"
        )
    if api_key in NOT_PARSABLE and serves:
        return Difference("SECURITY_DISABLED at once, open", "there is no authorizer, and the request is well-formed")
    if api_key in NOT_PARSABLE and state is State.TOKEN_DUE:
        return Difference(ILLEGAL, "the request is well-formed")
    if api_key == 56 and (serves or state is State.TOKEN_DUE):
        return Difference(CLOSED, "AlterPartition is served by members of a cluster only")
    if api_key in (2, 21, 23, 61) and state is State.TOKEN_DUE:
        return Difference(CLOSED, "the response has no field for an error, and the connection ends either way")
    if api_key == 24 and serves:
        return Difference(NONE, "Kafka 4.3.1 never responds to a request without transactions")
    if api_key in TOKENS:
        return None
    if state is State.AUTHENTICATED and kafkas_outcome(api_key, state) != kafkas_outcome(api_key, State.PLAINTEXT):
        return Difference(
            kafkas_outcome(api_key, State.PLAINTEXT), "there is no authorizer: every user may do everything"
        )
    return None


@scenario(settings={**SETTINGS, "delegation.token.secret.key": "k"}, seeds=(1,))
async def test_apis_in_every_state_have_the_outcome_of_kafka(stage: Stage) -> None:
    outcomes = await all_outcomes()
    wrong = []
    for cell, found in outcomes.items():
        instead = difference(*cell)
        expected = kafkas_outcome(*cell) if instead is None else instead.outcome
        if str(found) != expected:
            wrong.append(f"{cell[0]} {cell[1].value}: {found}, expected {expected}")
    assert not wrong, "\n".join(wrong)
    assert len(outcomes) == len(all_cells()) == 1024


def test_differences_are_fewer_than_one_cell_in_eight() -> None:
    different = [cell for cell in all_cells() if (each := difference(*cell)) and each.outcome != kafkas_outcome(*cell)]
    assert len(different) == 111
