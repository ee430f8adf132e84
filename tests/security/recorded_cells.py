"""The responses that Apache Kafka gave under access control lists (``acl_cells.txt``), on a real broker.

The unit tests have them from handlers in their own process; here clients send the requests and set the lists.
"""

import asyncio
from itertools import groupby
from pathlib import Path

from tests.conformance.acl_differences import expected
from tests.conformance.acl_table import Cell as RecordedCell
from tests.conformance.acl_table import read_cells
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell
from tests.security.live_stage import LiveStage, connected, settings_of


async def _try_all(ports: tuple[int, int], recorded: list[RecordedCell]) -> list[Cell]:
    connections = await connected(*ports)
    stage = LiveStage(connections)
    await stage.prepare()
    cells = []
    for _, of_case in groupby(recorded, key=lambda cell: cell.case):
        await stage.commit_offsets()  # OffsetDelete deletes them.
        cells += [Cell(str(cell), expected(cell), await stage.respond(cell)) for cell in of_case]
    for connection in connections.values():
        connection.close()
    return cells


def recorded_cells(directory: Path) -> list[Cell]:
    """Try all of them: on a broker that needs lists, and on one that allows everyone what has none."""
    cells = []
    for allows_everyone in (False, True):
        recorded = [cell for cell in read_cells() if cell.allows_everyone is allows_everyone]
        ports = free_port(), free_port()
        settings = [*settings_of(*ports), f"allow.everyone.if.no.acl.found={str(allows_everyone).lower()}"]
        with OncelogProcess(directory / f"everyone-{allows_everyone}", settings, ports[0]):
            cells += asyncio.run(_try_all(ports, recorded))
    return cells
