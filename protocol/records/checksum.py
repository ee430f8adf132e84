"""CRC-32C, as the extension module of the ``crc32c`` package computes it.

The package itself also loads its command line and reads its own version, for which the standard library loads forty
modules: 1.8 MiB of memory and 15 ms in each process. So the extension module is loaded alone.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, Protocol

from oncelog.protocol.schema import Buffer


class Checksum(Protocol):
    """Return the CRC of bytes; ``value`` is that of the bytes before them."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> Checksum:
    package = find_spec("crc32c")  # Which does not run it.
    found = None if package is None else PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        raise ModuleNotFoundError("the extension module of the package crc32c is missing", name="crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    checksum: Checksum = module.crc32c
    return checksum


crc32c: Final = _load()
