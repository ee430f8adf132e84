"""An operator who raises and lowers ``transaction.version`` while producers of both kinds are at work."""

import asyncio
import random

from oncelog.protocol.errors import ErrorCode
from tests.simulation import requests
from tests.simulation.patient_client import PatientClient, error_of
from tests.simulation.routes import Routes


class LevelChanger:
    """Finalises one level after the other until it is stopped."""

    def __init__(self, routes: Routes, rng: random.Random) -> None:
        self.stopping = False
        self.changes = 0
        self._rng = rng
        self._client = PatientClient(routes, rng)

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))
            present = requests.finalized_transaction_version(
                await self._client.succeed(requests.api_versions(), requests.API_VERSIONS_VERSION, error_of)
            )
            level = self._rng.choice([level for level in range(3) if level != present])
            request = requests.finalize_transaction_version(level, present)
            response = await self._client.call(request, requests.UPDATE_FEATURES_VERSION)
            self.changes += response.error_code == ErrorCode.NONE
