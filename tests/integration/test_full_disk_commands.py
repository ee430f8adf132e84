"""What the commands say of a broker whose disk is full: a whole broker on a simulated disk, commands as processes."""

import asyncio

from oncelog.clients.cli.session import wall_clock
from tests.command import Oncelog
from tests.simulation.sim_disk import SimDisk
from tests.unit.broker.handlers.administration import new_disk, running_broker

WHERE = "/data takes no writes (KAFKA_STORAGE_ERROR)"


async def test_full_disk_is_reported_by_health_ready_doctor_log_dirs_and_produce() -> None:
    disk = new_disk()
    async with running_broker(disk, wall_clock) as broker:
        (listener,) = broker.listeners.advertised.values()
        try:
            await asyncio.to_thread(_commands, Oncelog(f"localhost:{listener.port}"), disk)
        finally:
            disk.make_room()


def _commands(oncelog: Oncelog, disk: SimDisk) -> None:
    oncelog("topic create t --partitions 1")
    oncelog("produce t", "before\n")
    for healthy in ("health", "health --ready", "doctor", "log-dirs"):
        oncelog(healthy)
    disk.fill()
    refused = oncelog.run("produce t --timeout 15", "a line that does not fit\n" * 100)
    assert refused.returncode != 0
    assert "KAFKA_STORAGE_ERROR" in refused.stderr
    health, doctor = oncelog.run("health"), oncelog.run("doctor")
    assert (health.returncode, "HEALTHY           no" in health.stdout) == (1, True)
    assert f"broker 1: {WHERE}" in health.stdout
    assert (doctor.returncode, f"broker 1: {WHERE}" in doctor.stdout) == (1, True)
    assert WHERE in oncelog.fails("health --ready", exit_code=1)
    assert "KAFKA_STORAGE_ERROR" in oncelog.fails("log-dirs", exit_code=1)
