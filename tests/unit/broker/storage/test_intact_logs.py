"""``intact-logs``: what a data directory may claim after each way in which a broker can end."""

import random
from collections.abc import Callable

import pytest

from oncelog.broker.storage import clean_shutdown
from oncelog.broker.storage.data_directory import DataDirectory
from oncelog.broker.storage.directory_identity import UNKNOWN_BOOT
from oncelog.broker.storage.intact_logs import FILE_NAME, IntactEpochs
from tests.simulation.sim_disk import SimDisk

PATH = f"/data/{FILE_NAME}"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def opened(disk: SimDisk) -> DataDirectory:
    directory = DataDirectory(disk, "/data")
    directory.open()
    return directory


async def registered(disk: SimDisk, *epochs: int) -> DataDirectory:
    directory = opened(disk)
    for epoch in epochs:
        await directory.intact.note_registration(epoch)
    return directory


async def test_new_directory_is_intact_only_since_its_registration(disk: SimDisk) -> None:
    directory = opened(disk)
    assert (directory.intact.since, directory.intact.until) == (None, None)
    await directory.intact.note_registration(7)
    await directory.intact.note_registration(9)
    assert directory.intact.epochs == IntactEpochs(7, 9)


async def test_new_directory_of_a_broker_that_was_registered_before_logs_one_warning(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The wrong directory was named, or the right one is lost: its replicas are empty."""
    directory = opened(disk)
    await directory.intact.begin_registration(0xB, (0xA, 317))
    await directory.intact.begin_registration(0xC, (0xA, 317))
    [warning] = caplog.messages
    for words in ("/data", "broker epoch 317", "missing here", "log.dirs (--data-dir)"):
        assert words in warning


@pytest.mark.parametrize("last", [None, (0xA, 317)])
async def test_first_start_of_a_broker_logs_no_warning(
    disk: SimDisk, last: tuple[int, int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if it was killed before it had noted its first registration."""
    if last is not None:
        opened(disk).claim(1, "cluster")
    await opened(disk).intact.begin_registration(0xB, last)
    assert caplog.messages == []


async def test_killed_process_has_lost_nothing(disk: SimDisk) -> None:
    await registered(disk, 7)
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)


async def test_loss_of_power_breaks_the_logs_also_after_another_kill(disk: SimDisk) -> None:
    """B57"""
    await registered(disk, 7)
    disk.crash("power", random.Random(0))
    assert opened(disk).intact.epochs is None
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs is None


async def test_loss_of_power_is_not_forgotten_by_a_clean_shutdown(disk: SimDisk) -> None:
    """B57: a broker that failed to start after the power was back, and ended properly."""
    await registered(disk, 7)
    disk.crash("power", random.Random(0))
    opened(disk).close_cleanly(clean_shutdown.NO_BROKER_EPOCH)
    assert opened(disk).intact.epochs is None


async def test_clean_shutdown_outlives_a_loss_of_power(disk: SimDisk) -> None:
    (await registered(disk, 7)).close_cleanly(7)
    disk.crash("power", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)
    disk.crash("process", random.Random(0))  # Before it registers: the mark is gone, the boot is noted.
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)


async def test_start_that_never_registered_and_ended_properly_breaks_nothing(disk: SimDisk) -> None:
    (await registered(disk, 7)).close_cleanly(7)
    opened(disk).close_cleanly(clean_shutdown.NO_BROKER_EPOCH)
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)


@pytest.mark.parametrize("epoch", [9, clean_shutdown.NO_BROKER_EPOCH])
async def test_mark_of_an_incarnation_that_noted_nothing_proves_nothing(disk: SimDisk, epoch: int) -> None:
    """B57: an earlier release ran in between, and recovered from a loss of power."""
    await registered(disk, 7)
    disk.crash("power", random.Random(0))
    clean_shutdown.write_mark(disk, "/data", epoch)
    assert opened(disk).intact.epochs is None


def emptied(disk: SimDisk) -> None:
    disk.remove(PATH)


def copied(disk: SimDisk) -> None:
    disk.write_atomic(PATH, b"7 7 0 /elsewhere\n")


def garbled(disk: SimDisk) -> None:
    disk.write_atomic(PATH, b"\xff 7\n")


@pytest.mark.parametrize("change", [emptied, copied, garbled])
async def test_other_directory_is_broken(disk: SimDisk, change: Callable[[SimDisk], None]) -> None:
    await registered(disk, 7)
    disk.crash("process", random.Random(0))
    change(disk)
    assert opened(disk).intact.epochs is None


async def test_machine_that_cannot_name_its_boot_needs_a_clean_shutdown(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimDisk, "identity", lambda self, path: f"{UNKNOWN_BOOT} 8:1")
    (await registered(disk, 7)).close_cleanly(7)
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs is None


async def test_damage_is_on_disk_when_it_is_noted(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    directory.intact.note_damage("a segment is missing")
    assert (directory.intact.since, disk.exists(PATH)) == (None, False)
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs is None


def shorten(disk: SimDisk) -> None:
    """Leave a file of an earlier release: no longer than it must be."""
    disk.write_atomic(PATH, disk.read(PATH).rstrip() + b"\n")


async def test_registrations_on_a_full_disk_are_written_over_the_earlier_ones(disk: SimDisk) -> None:
    """B105: and its broker is killed again and again."""
    await registered(disk, 7)
    disk.fill()
    for session in (0xA, 0xB, 0xC):  # The epoch of the one before was not learned.
        disk.crash("process", random.Random(0))
        directory = opened(disk)
        await directory.intact.begin_registration(session, (session - 1, session - 1) if session > 0xA else (0x9, 7))
    await directory.intact.note_registration(0xC)
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 0xC)


async def test_overwritten_file_survives_a_loss_of_power_after_a_clean_shutdown(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    disk.fill()
    await directory.intact.note_registration(9)
    disk.make_room()
    directory.close_cleanly(9)
    disk.crash("power", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 9)


async def test_full_disk_keeps_what_was_noted_before_unless_it_can_be_overwritten(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    shorten(disk)
    disk.fill(leave=20)
    await directory.intact.note_registration(9)
    assert directory.intact.epochs == IntactEpochs(7, 9)
    disk.crash("process", random.Random(0))
    disk.make_room()
    assert opened(disk).intact.epochs == IntactEpochs(7, 7)


async def test_registration_that_could_not_be_noted_is_noted_as_soon_as_there_is_room(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    shorten(disk)
    disk.fill()
    await directory.intact.note_registration(9)
    with pytest.raises(OSError, match="28"):
        directory.intact.note_again()
    disk.make_room()
    directory.intact.note_again()
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 9)


async def test_registration_whose_epoch_was_not_learned_is_recognised_by_its_session(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    await directory.intact.begin_registration(0xA, (0x9, 7))
    await directory.intact.begin_registration(0xB, (0x9, 7))
    disk.crash("process", random.Random(0))
    directory = opened(disk)
    await directory.intact.begin_registration(0xC, (0xA, 9))
    assert directory.intact.epochs == IntactEpochs(7, 9)
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 9)


async def test_epochs_end_where_another_directory_was_registered(disk: SimDisk) -> None:
    """B105: it has records that this one lacks; what this one had it still has."""
    (await registered(disk, 7)).close_cleanly(7)
    directory = opened(disk)
    await directory.intact.begin_registration(0xC, (0xA, 9))
    assert (directory.intact.since, directory.intact.until, directory.intact.earlier) == (None, None, ((7, 7),))
    await directory.intact.note_registration(11)
    disk.crash("process", random.Random(0))
    intact = opened(disk).intact
    assert (intact.epochs, intact.earlier) == (IntactEpochs(11, 11), ((7, 7),))
    intact.note_damage("a segment is missing")
    assert (intact.epochs, intact.earlier) == (None, ())


@pytest.mark.parametrize("closes", [False, True])
async def test_epochs_that_have_ended_do_not_go_on_with_the_next_start(disk: SimDisk, closes: bool) -> None:
    """B105: neither when nothing was learned of the registration, nor when it was not made."""
    await registered(disk, 7)
    directory = opened(disk)
    await directory.intact.begin_registration(0xC, (0xA, 9))
    if closes:
        directory.close_cleanly(clean_shutdown.NO_BROKER_EPOCH)
        disk.crash("power", random.Random(0))
    intact = opened(disk).intact
    await intact.begin_registration(0xD, (0xC, 11))
    assert (intact.epochs, intact.earlier) == (IntactEpochs(11, 11), ((7, 7),))
    intact = opened(disk).intact
    await intact.begin_registration(0xE, (0xB, 13))
    assert (intact.epochs, intact.earlier) == (None, ((7, 7), (11, 11)))


async def test_earlier_sessions_are_forgotten_with_the_next_epoch(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    await directory.intact.begin_registration(0xA, None)
    await directory.intact.begin_registration(0xB, None)
    await directory.intact.note_registration(9)
    await directory.intact.begin_registration(0xC, (0xA, 10))
    assert (directory.intact.epochs, directory.intact.earlier) == (None, ((7, 9),))


async def test_last_registration_that_a_tool_has_written_again_is_recognised(disk: SimDisk) -> None:
    """It copied the tree, say; the transaction is not the broker's, its session is."""
    directory = await registered(disk, 7)
    await directory.intact.begin_registration(0xA, None)
    await directory.intact.note_registration(9)
    disk.crash("process", random.Random(0))
    directory = opened(disk)
    await directory.intact.begin_registration(0xB, (0xA, 10))
    assert directory.intact.epochs == IntactEpochs(7, 10)


async def test_epoch_that_was_learned_late_is_that_of_the_clean_shutdown(disk: SimDisk) -> None:
    directory = await registered(disk, 7)
    await directory.intact.begin_registration(0xA, None)
    await directory.intact.begin_registration(0xB, (0xA, 9))
    directory.close_cleanly(7)  # The broker knows of no later registration.
    disk.crash("power", random.Random(0))
    assert opened(disk).intact.epochs == IntactEpochs(7, 9)


async def test_sessions_hide_no_noted_log_ends(disk: SimDisk) -> None:
    (await registered(disk, 7)).close_cleanly(7)
    await opened(disk).intact.begin_registration(0xA, (0x9, 7))
    disk.crash("process", random.Random(0))
    assert opened(disk).intact.ends_are_noted
