"""The fetch positions that are woken by a partition, of consumers and of followers."""

from dataclasses import dataclass, field

from oncelog.broker.replication.fetch_session import FetchPosition


@dataclass(slots=True, eq=False)
class Watchers:
    """Those of one partition, in the order in which they came. They stay when another broker leads."""

    consumers: dict[FetchPosition, None] = field(default_factory=dict)
    followers: dict[FetchPosition, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.consumers) + len(self.followers)

    def of(self, position: FetchPosition) -> dict[FetchPosition, None]:
        """Return those among which a position belongs."""
        return self.followers if position.session.privileged else self.consumers

    def all_progressed(self) -> None:
        """Wake all fetches: offsets other than the log's end have moved."""
        for position in (*self.consumers, *self.followers):
            position.session.progressed(position, -1, 0)

    def all_disturbed(self) -> None:
        """Have all fetches respond now: something other than data has changed."""
        for position in (*self.consumers, *self.followers):
            position.session.disturbed(position)
