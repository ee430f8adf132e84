"""Delegation tokens (KIP-48, KIP-373): with one a client authenticates by SCRAM as its owner, without a password.

A token's id is the user then, and its hmac in base64 the password; ``sasl_tokenauth`` says so. The hmac is a secret: it
is in no text of these values.
"""

import base64
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import require_success
from oncelog.clients.routes import AnyBroker
from oncelog.protocol.delegation_token import TokenInformation
from oncelog.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from oncelog.protocol.principal import Principal

_SUBJECT: Final = "delegation token"
_FIRST_VERSION_WITH_OWNER: Final = 3
_DEFAULT_PERIOD: Final = -1
_AT_ONCE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token with its secret."""

    information: TokenInformation
    hmac: bytes = field(repr=False)

    @property
    def token_id(self) -> str:
        """The user of a client that authenticates by the token."""
        return self.information.token_id

    @property
    def password(self) -> str:
        """The password of a client that authenticates by the token."""
        return base64.b64encode(self.hmac).decode()


async def create_token(
    cluster: Cluster,
    *,
    owner: Principal | None = None,
    renewers: Collection[Principal] = (),
    max_lifetime_ms: int | None = None,
) -> DelegationToken:
    """Create a token of the client itself, or of another owner. Raises ``BrokerRefused``.

    Beside the owner the renewers may renew it and let it expire. It cannot be renewed beyond ``max_lifetime_ms`` from
    now; None: as long as the broker allows. If the response was lost, a token that no one uses may remain.
    """
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.type,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers],
        max_lifetime_ms=_DEFAULT_PERIOD if max_lifetime_ms is None else max_lifetime_ms,
    )
    response = await cluster.call(
        AnyBroker(),
        request,
        CreateDelegationTokenResponse,
        errors=lambda r: [r.error_code],
        at_least=0 if owner is None else _FIRST_VERSION_WITH_OWNER,
    )
    require_success(_SUBJECT, response.error_code)
    created_for = Principal(response.principal_type, response.principal_name)
    requester = Principal(response.token_requester_principal_type, response.token_requester_principal_name)
    return DelegationToken(
        information=TokenInformation(
            token_id=response.token_id,
            owner=created_for,
            requester=requester if requester.name else created_for,
            renewers=tuple(renewers),
            issue_timestamp_ms=response.issue_timestamp_ms,
            max_timestamp_ms=response.max_timestamp_ms,
            expiry_timestamp_ms=response.expiry_timestamp_ms,
        ),
        hmac=bytes(response.hmac),
    )


async def renew_token(cluster: Cluster, hmac: bytes, *, period_ms: int | None = None) -> int:
    """Have a token expire ``period_ms`` from now, None: as late as the broker allows.

    Returns the time at which it expires, in milliseconds since the epoch. Raises ``BrokerRefused``.
    """
    request = RenewDelegationTokenRequest(
        hmac=hmac, renew_period_ms=_DEFAULT_PERIOD if period_ms is None else period_ms
    )
    response = await cluster.call(AnyBroker(), request, RenewDelegationTokenResponse, errors=lambda r: [r.error_code])
    require_success(_SUBJECT, response.error_code)
    return response.expiry_timestamp_ms


async def expire_token(cluster: Cluster, hmac: bytes, *, period_ms: int | None = None) -> int:
    """Have a token expire ``period_ms`` from now, None: remove it at once.

    Returns the time at which it expires, in milliseconds since the epoch; it has no meaning for a token that was
    removed. Raises ``BrokerRefused``.
    """
    request = ExpireDelegationTokenRequest(
        hmac=hmac, expiry_time_period_ms=_AT_ONCE if period_ms is None else period_ms
    )
    response = await cluster.call(AnyBroker(), request, ExpireDelegationTokenResponse, errors=lambda r: [r.error_code])
    require_success(_SUBJECT, response.error_code)
    return response.expiry_timestamp_ms


async def describe_tokens(cluster: Cluster, owners: Collection[Principal] | None = None) -> list[DelegationToken]:
    """Return the tokens that this client may see, of some owners or of all, the oldest first.

    Raises ``BrokerRefused``.
    """
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
    )
    response = await cluster.call(
        AnyBroker(), request, DescribeDelegationTokenResponse, errors=lambda r: [r.error_code]
    )
    require_success(f"{_SUBJECT}s", response.error_code)
    found = map(_described, response.tokens)
    return sorted(found, key=lambda each: (each.information.issue_timestamp_ms, each.token_id))


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = Principal(token.principal_type, token.principal_name)
    requester = Principal(token.token_requester_principal_type, token.token_requester_principal_name)
    return DelegationToken(
        information=TokenInformation(
            token_id=token.token_id,
            owner=owner,
            requester=requester if requester.name else owner,
            renewers=tuple(Principal(each.principal_type, each.principal_name) for each in token.renewers),
            issue_timestamp_ms=token.issue_timestamp,
            max_timestamp_ms=token.max_timestamp,
            expiry_timestamp_ms=token.expiry_timestamp,
        ),
        hmac=bytes(token.hmac),
    )
