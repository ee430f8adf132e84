"""What to do about brokers that are in the cluster and not reached from this machine. Pure."""

from typing import Final

DOCTOR_SETS: Final = "`oncelog doctor` says what to set"


def unreached_advice(leads: int, silent: int | None = None) -> str:
    """Return the advice about a broker that is not reached, and is listed as leader of ``leads`` partitions.

    ``silent`` is its id if its address accepts connections: then its process is there.
    """
    as_leader = f", as leader of {count_partitions(leads)}" if leads else ""
    counts = f"brokers count as alive until their ZooKeeper session ends, and this one still does{as_leader}"
    if silent is not None:
        resume = f"if it is paused, resume it (of `oncelog cluster`: `oncelog cluster resume {silent}`)"
        return f"{resume}, and see its output if not: {counts}"
    return f"if it has ended, start it: {counts}; if it runs, {DOCTOR_SETS}"


def count_partitions(count: int) -> str:
    """Return a number of partitions in words."""
    return f"{count} partition{'' if count == 1 else 's'}"
