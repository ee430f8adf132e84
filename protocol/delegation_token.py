"""``TokenInformation``: what is known of a delegation token (KIP-48), without its secret."""

from dataclasses import dataclass

from oncelog.protocol.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInformation:
    """One token. Times are milliseconds since the Unix epoch."""

    token_id: str
    owner: Principal
    """The principal as which a client is authenticated by the token."""
    requester: Principal
    """The principal that created it: the owner, or one that may create tokens for the owner."""
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    @property
    def expires_at_ms(self) -> int:
        """The time after which no client can authenticate by it."""
        return min(self.expiry_timestamp_ms, self.max_timestamp_ms)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether no client can authenticate by it any more."""
        return self.expires_at_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """Return whether a principal may renew it and let it expire."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Return whether a principal is the owner, the requester or a renewer, each of which may describe it."""
        return principal == self.requester or self.may_renew(principal)
