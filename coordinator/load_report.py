"""One line of the log for the loads of an internal topic's partitions, once none is under way any more.

A broker that starts loads up to a hundred partitions of internal topics within milliseconds. Each is a line of its own
at level DEBUG only.
"""

from logging import Logger


class LoadReport:
    """The report of one internal topic. ``what`` names the content of its partitions, in the plural."""

    def __init__(self, topic: str, what: str, logger: Logger) -> None:
        self._topic = topic
        self._what = what
        self._logger = logger
        self._found: dict[int, int] = {}

    def note(self, index: int, count: int) -> None:
        """Add a partition that has been loaded, and how many it holds."""
        self._logger.debug("Loaded %d %s of %s-%d", count, self._what, self._topic, index)
        if count:
            self._found[index] = count

    def conclude(self) -> None:
        """Log what the loaded partitions hold, unless that is nothing."""
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
