"""A request's frame in a few words."""

from struct import Struct
from typing import Final

from oncelog.protocol.api_keys import ApiKey

_HEADER: Final = Struct(">ihhi")
"""Size, API key, version, correlation id."""
_NAMES: Final = {int(key): key.name for key in ApiKey}


def describe_request(frame: bytes, receiver: str) -> str:
    """Return API, version, receiver and size of a request, as far as these bytes begin one."""
    if len(frame) < _HEADER.size:
        return f"{len(frame)} bytes to {receiver}"
    size, api_key, version, correlation_id = _HEADER.unpack_from(frame)
    return f"{_NAMES.get(api_key, api_key)} v{version} to {receiver} (correlation id {correlation_id}, {size} bytes)"
