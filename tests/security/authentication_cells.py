"""Every API key in every state of authentication, on a real broker, with TLS and without."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port
from tests.scenarios.kafkas_outcomes import expected_outcome
from tests.scenarios.sasl_states import Ends, Outcome, State, all_cells, authenticating_settings, outcome
from tests.security.cell import Cell

AT_ONCE: Final = 24
"""Cells that are tried side by side."""
DELAY_SECONDS: Final = 0.6
"""Before the end of a connection whose authentication has failed: more than a busy machine takes for a response."""


def authentication_cells(directory: Path) -> list[Cell]:
    """Try all cells on both kinds of listeners."""
    certificates = directory / "certificates"
    Oncelog("")(f"tls init {certificates}")
    cells = []
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        tls = ssl.create_default_context(cafile=str(certificates / "ca.pem")) if protocol == "SASL_SSL" else None
        ends = Ends(free_port(), free_port(), free_port(), "localhost", tls, DELAY_SECONDS)
        settings = authenticating_settings(ends, protocol=protocol)
        if tls is not None:
            settings["ssl.keystore.location"] = str(certificates / "broker-localhost.pem")
        texts = [f"{key}={value}" for key, value in settings.items()]
        with OncelogProcess(directory / protocol, texts, ends.plaintext):
            cells += asyncio.run(_try_all(protocol, ends))
    return cells


async def _try_all(protocol: str, ends: Ends) -> list[Cell]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def tried(api_key: int, state: State) -> Cell:
        async with slots:
            found: Outcome | str
            try:
                found = await outcome(api_key, state, ends)
            except (OSError, AssertionError) as error:
                found = f"{type(error).__name__}: {error}"
        return Cell(f"{protocol}, API {api_key}, {state.value}", expected_outcome(api_key, state), str(found))

    first = [await tried(*cell) for cell in all_cells() if cell[1] is State.PLAINTEXT]  # They see what others create.
    return first + await asyncio.gather(*(tried(*cell) for cell in all_cells() if cell[1] is not State.PLAINTEXT))
