"""Requests about delegation tokens."""

from typing import Any, Final

from oncelog.protocol.acl import AclOperation as Op
from oncelog.protocol.acl import AclResourceType as Type
from oncelog.protocol.errors import ErrorCode
from tests.security.authorization_row import Effect, Made, Need, Row, shown

_OF_BOB: Final = {"owner_principal_type": "User", "owner_principal_name": "bob", "max_lifetime_ms": 60_000}
_NOT_ENOUGH: Final = (
    Need(Type.USER, Op.CREATE_TOKENS, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, Effect.IS_NOT_ENOUGH),
    Need(Type.DELEGATION_TOKEN, Op.DESCRIBE, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, Effect.IS_NOT_ENOUGH),
)
"""No list opens another user's token to changes."""


def _shows_token(response: Any, made: Made) -> bool:
    return made.token_id in {token.token_id for token in response.tokens}


TOKEN_ROWS: Final = (
    Row(
        request="CreateDelegationToken",
        version=3,
        title="for oneself",
        fields={"max_lifetime_ms": 60_000},
        needs=(Need(Type.USER, Op.CREATE_TOKENS, effect=Effect.IS_NOT_NEEDED),),
    ),
    Row(
        request="CreateDelegationToken",
        version=3,
        title="for another user",
        fields=_OF_BOB,
        needs=(Need(Type.USER, Op.CREATE_TOKENS),),
    ),
    Row(
        request="RenewDelegationToken",
        version=2,
        title="of another user",
        fields=lambda made: {"hmac": made.token_hmac, "renew_period_ms": 1_000_000},
        needs=_NOT_ENOUGH,
    ),
    Row(
        request="ExpireDelegationToken",
        version=2,
        title="of another user",
        fields=lambda made: {"hmac": made.token_hmac, "expiry_time_period_ms": 1_000_000},
        needs=_NOT_ENOUGH,
    ),
    Row(
        request="DescribeDelegationToken",
        version=3,
        title="by the token",
        fields={"owners": None},
        needs=(shown(Type.DELEGATION_TOKEN, Op.DESCRIBE),),
        shows=_shows_token,
    ),
    Row(
        request="DescribeDelegationToken",
        version=3,
        title="by its owner",
        fields={"owners": [{"principal_type": "User", "principal_name": "bob"}]},
        needs=(shown(Type.USER, Op.DESCRIBE_TOKENS),),
        shows=_shows_token,
    ),
)
