"""The fence of control requests: none of an older controller is carried out, and none that a later one overtook.

A controller sends one request at a time to each broker, and repeats it until it responds. The network may deliver a
request once more, or for the first time, when later ones have been carried out: the connection that it was given up on
may deliver what it held. Such a request describes a state of the cluster that has passed. Two numbers distinguish it
from others: the epoch of the controller, and the request's ``sequence``, which grows within an epoch. The last request
may come again, which changes nothing.

Controllers of Apache Kafka, and of Oncelog before it had sequences, send none; then the epoch alone decides.
"""

from typing import Final

NO_SEQUENCE: Final = -1


class ControllerFence:
    """The newest control request that one broker has received, of any kind."""

    __slots__ = ("epoch", "sequence")

    def __init__(self) -> None:
        self.epoch = -1
        """The highest epoch of a controller that sent a request."""
        self.sequence = NO_SEQUENCE
        """The highest sequence of this epoch."""

    def admit(self, epoch: int, sequence: int) -> bool:
        """Return whether a request is to be carried out, and fence off what is older than it."""
        if epoch > self.epoch:
            self.epoch, self.sequence = epoch, sequence
            return True
        if epoch < self.epoch or NO_SEQUENCE < sequence < self.sequence:
            return False
        self.sequence = max(self.sequence, sequence)
        return True
