"""A simulated disk whose machine can be stopped right before a chosen call.

This is how a test brings a broker down at one step of its work: "before the marker is appended to invoices-0" is a call
of ``append`` on that partition's log.
"""

import random

from tests.simulation.sim_disk import CrashKind, MachineStopped, SimDisk, _Content


class StoppingDisk(SimDisk):
    """``stop_before`` chooses the call; ``stopped`` says that it came."""

    __slots__ = ("_target",)

    def __init__(self) -> None:
        super().__init__()
        self._target: tuple[str, str, int] | None = None

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop_before(self, operation: str, path_part: str, *, skip: int = 0) -> None:
        """Nothing happens on this machine from such a call on, the call itself included, until ``crash``.

        ``skip`` lets so many of these calls pass first.
        """
        self._target = (operation, path_part, skip)
        self.journal.note(self.name, "machine stops", f"before {operation} of {path_part}, {skip} times passed")

    def peek(self, path: str) -> bytes:
        """Return what processes see of a file, without a disk call; nothing if there is no such file."""
        try:
            parent, name = self._parent(path)
        except OSError:
            return b""
        node = parent.volatile.get(name)
        return bytes(node.volatile) if isinstance(node, _Content) else b""

    def crash(self, kind: CrashKind, rng: random.Random) -> None:
        self._target = None
        super().crash(kind, rng)

    def enter(self, operation: str, path: str) -> None:
        if self._target is not None and operation == self._target[0] and self._target[1] in path:
            self._count_down(*self._target)
        super().enter(operation, path)

    def _count_down(self, operation: str, path_part: str, skip: int) -> None:
        self._target = (operation, path_part, skip - 1) if skip else None
        if not skip:
            self.stop()
            raise MachineStopped
