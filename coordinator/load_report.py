"""What the loads of partitions have found, in one line of the log when none is under way any more.

A broker that starts loads up to a hundred partitions of internal topics within milliseconds. Each is a line of its own
at level DEBUG only.
"""

from logging import Logger


class LoadReport:
    """Of one internal topic. ``what`` names what its partitions hold, in the plural."""

    def __init__(self, topic: str, what: str, logger: Logger) -> None:
        self._topic = topic
        self._what = what
        self._logger = logger
        self._found: dict[int, int] = {}

    def note(self, index: int, count: int) -> None:
        """A partition has been loaded, and holds so many."""
        self._logger.debug("Loaded %d %s of %s-%d", count, self._what, self._topic, index)
        if count:
            self._found[index] = count

    def conclude(self) -> None:
        """No partition is being loaded now: log what those hold that were, unless that is nothing."""
        found, self._found = self._found, {}
        if found:
            partitions = ", ".join(map(str, sorted(found)))
            self._logger.info(
                "Loaded %d %s of %s, partition%s %s",
                sum(found.values()),
                self._what,
                self._topic,
                "" if len(found) == 1 else "s",
                partitions,
            )
