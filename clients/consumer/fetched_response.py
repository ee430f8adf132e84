"""One response of a broker, as far as it waits to be polled. Pure."""


class FetchedResponse:
    """Counts what a response brought that the application can still be given."""

    __slots__ = ("unread",)

    def __init__(self) -> None:
        self.unread = 0
        """Partitions with records, or an error, that wait; without those that are set aside."""
