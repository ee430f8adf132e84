"""The supervisor stops what it spawned and loses no exception."""

import asyncio
import logging

import pytest

from broker.supervisor import Supervisor


async def test_stop_cancels_every_task_and_waits_for_its_end() -> None:
    supervisor = Supervisor()
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(name)

    supervisor.spawn(forever("first"), "first")
    supervisor.spawn(forever("second"), "second")
    await asyncio.sleep(0)
    await supervisor.stop()
    assert ended == ["first", "second"]
    assert len(supervisor) == 0


async def test_a_failed_task_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    supervisor = Supervisor()
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="broken"):
        await supervisor.spawn(fail(), "retention")
    assert "retention" in caplog.text
    assert "broken" in caplog.text


async def test_nothing_is_spawned_after_stop() -> None:
    async def never() -> None:
        raise AssertionError("must not run")

    supervisor = Supervisor()
    await supervisor.stop()
    with pytest.raises(RuntimeError, match="stopping"):
        supervisor.spawn(never(), "late")
