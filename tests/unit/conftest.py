"""Asynchronous unit tests run in virtual time, over a network in memory.

A timeout then passes at once, no test depends on how busy the machine is, and a wait that nothing ends raises
``Deadlock`` instead of hanging. A test of what the operating system does (TLS, threads, files through aiofiles) is
marked ``real_loop`` and runs on asyncio's own event loop.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

import pytest

from tests.simulation.virtual_loop import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the event loop of an asynchronous test; its name is not shown, as there is only one."""
    if item.get_closest_marker("real_loop") is not None:
        return {"asyncio": asyncio.new_event_loop}
    return {"virtual": lambda: VirtualLoop(Random(0))}
