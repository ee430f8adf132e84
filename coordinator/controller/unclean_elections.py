"""``UncleanElections``: how often a broker, as the controller, elected a leader that may lack acknowledged records."""


class UncleanElections:
    """A count that outlasts the controller epochs of one process."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1
