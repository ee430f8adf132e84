"""A JoinGroup request as its handler hands it over."""

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.coordinator.group.member import GroupProtocol
from oncelog.coordinator.group.state import JoinRequest

LONGEST_INSTANCE_ID: Final = 249
"""Characters, as Kafka's clients demand of their ``group.instance.id``."""
LONGEST_CLIENT_ID: Final = 249
"""Characters of a client id that its member keeps; the rest is cut off.

A member id is one of the two and 37 characters, and is part of responses to other members and of the group's record:
what cannot be encoded there would be the whole group's failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningMember:
    """A JoinGroup request, and what the connection knows of its client."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[GroupProtocol]
    requires_known_member_id: bool
    supports_skipping_assignment: bool
    reason: str | None = None

    def to_request(self, rng: random.Random) -> JoinRequest:
        """Return the request of the state machine, with an id for a new member.

        JoinGroup 0 has no rebalance time-out; its session time-out serves for both.
        """
        client_id = self.client_id[:LONGEST_CLIENT_ID]
        name = self.group_instance_id or client_id
        unique = uuid.UUID(int=rng.getrandbits(128), version=4)
        has_rebalance_timeout = self.rebalance_timeout_ms > 0
        return JoinRequest(
            member_id=self.member_id,
            new_member_id=f"{name}-{unique}",
            group_instance_id=self.group_instance_id,
            client_id=client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms if has_rebalance_timeout else self.session_timeout_ms,
            protocol_type=self.protocol_type,
            protocols=tuple({protocol.name: protocol for protocol in reversed(self.protocols)}.values())[::-1],
            requires_known_member_id=self.requires_known_member_id,
            supports_skipping_assignment=self.supports_skipping_assignment,
        )
