"""The configurations of the models and what TLC finds in each: a violated property, or nothing.

A configuration that shall find nothing says how many distinct states it has at least, so that a model that was cut off
by accident does not pass. One that shall find something checks only the property that it names.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

SAFETY: Final = (
    "Atomicity",
    "AcknowledgedCommitIsVisible",
    "AbortedIsInvisible",
    "OwnOutcome",
    "NoHangingTransaction",
    "NoTransactionReopens",
    "NoDuplicate",
)
LIVENESS: Final = "EveryClientEnds"


class Bounds(NamedTuple):
    """How often each event happens at most."""

    transactions: int = 2
    late: int = 1
    markers: int = 0
    failovers: int = 0
    time_outs: int = 0


class Configuration(NamedTuple):
    """One run of TLC."""

    name: str
    version: int
    bounds: Bounds
    violated: str | None = None
    """The property that is violated; None: none is."""
    without: tuple[str, ...] = ()
    """The safeguards that are taken out."""
    processes: int = 1
    offsets: bool = True
    """Whether the second partition is one of __consumer_offsets."""
    pipelines: bool = False
    frames_apart: bool = False
    least_states: int = 0
    live: bool = False
    """Whether liveness is checked, under fairness, instead of safety."""
    deep: bool = False
    """Whether only ``make model-deep`` runs it."""

    @property
    def properties(self) -> tuple[str, ...]:
        """Return what TLC checks: all safety properties where nothing shall be found."""
        if self.violated:
            return (self.violated,)
        return (LIVENESS,) if self.live else SAFETY

    @property
    def is_live(self) -> bool:
        return LIVENESS in self.properties

    @property
    def difference(self) -> str:
        """Return in words what this configuration has, and what is taken out."""
        bounds = self.bounds
        counts = {
            "transaction": bounds.transactions,
            "late frame": bounds.late,
            "late marker": bounds.markers,
            "failover": bounds.failovers,
            "time-out": bounds.time_outs,
            "processes": self.processes if self.processes > 1 else 0,
        }
        words = [
            f"{count} {name}{'s' if count > 1 and name[-1] != 's' else ''}" for name, count in counts.items() if count
        ]
        words += ["an offsets partition"] if self.offsets else []
        words += ["pipelined frames"] if self.pipelines else []
        words += ["that arrive apart"] if self.frames_apart else []
        return ", ".join(words) + "".join(f"; without *{safeguard}*" for safeguard in self.without)

    def text(self) -> str:
        """Return the configuration as TLC reads it."""
        processes = ["a", "b"][: self.processes]
        values = {
            "Producers": _set(processes),
            "Partitions": "{p, q}",
            "OffsetPartitions": "{q}" if self.offsets else "{}",
            "Version": self.version,
            "Without": _set(f'"{safeguard}"' for safeguard in self.without),
            "Pipelines": _boolean(self.pipelines),
            "FramesApart": _boolean(self.frames_apart),
            "Narrates": _boolean(self.violated is not None or not self.is_live),
            "MaxTransactions": self.bounds.transactions,
            "MaxLateFrames": self.bounds.late,
            "MaxLateMarkers": self.bounds.markers,
            "MaxFailovers": self.bounds.failovers,
            "MaxTimeOuts": self.bounds.time_outs,
        }
        lines = ["SPECIFICATION FairSpec" if self.is_live else "SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"    {name} = {name}" for name in [*processes, "p", "q"]]
        lines += [f"    {name} = {value}" for name, value in values.items()]
        lines += [f"{'PROPERTY' if name == LIVENESS else 'INVARIANT'} {name}" for name in self.properties]
        if not self.is_live:
            lines += ["VIEW vars"] + (["SYMMETRY Symmetry"] if self.processes > 1 else [])
        return "\n".join(lines) + "\n"


def _set(elements: Iterable[str]) -> str:
    return "{" + ", ".join(elements) + "}"


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"
