"""What to do about brokers that are in the cluster and not reached from this machine. Pure."""

from typing import Final

DOCTOR_SETS: Final = "`oncelog doctor` says what to set"


def unreached_advice(leads: int) -> str:
    """Return the advice about a broker that is not reached, and is listed as leader of ``leads`` partitions."""
    as_leader = f", as leader of {count_partitions(leads)}" if leads else ""
    return (
        "if it has ended, start it: brokers count as alive until their ZooKeeper session ends, and this one still does"
        f"{as_leader}; if it runs, {DOCTOR_SETS}"
    )


def count_partitions(count: int) -> str:
    """Return a number of partitions in words."""
    return f"{count} partition{'' if count == 1 else 's'}"
