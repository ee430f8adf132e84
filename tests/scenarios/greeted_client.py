"""A connection whose client has had the response to ApiVersions, so that what it sends is later than all before."""

import asyncio
from typing import Final

from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from tests.scenarios.stage import Stage
from tests.simulation.wire_client import WireClient

HELLO: Final = ApiVersionsRequest(client_software_name="test", client_software_version="1")
HELLO_VERSION: Final = 3
_A_MOMENT: Final = 0.01
"""Seconds; what is greeted in the same millisecond as something happens is not known to be later."""


async def greeted(stage: Stage, hello: ApiVersionsRequest = HELLO) -> WireClient:
    await asyncio.sleep(_A_MOMENT)
    client = await stage.connect()
    await client.call(hello, HELLO_VERSION)
    await asyncio.sleep(_A_MOMENT)
    return client
