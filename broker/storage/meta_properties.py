"""``meta.properties``: the broker and the cluster that a data directory belongs to.

Kafka's version 0 (ZooKeeper mode), in Java's properties format: ``broker.id``, ``cluster.id`` and ``version``. Of a
directory that was KRaft's the version stays 1, where the broker's id is called ``node.id``; and keys that are not known
are kept, so that a directory can go back to the broker that wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from oncelog.broker.storage.disk import Disk

FILE_NAME: Final = "meta.properties"

_VERSION_KEY: Final = "version"
_BROKER_ID_KEYS: Final = ("broker.id", "node.id")
"""By version."""
_CLUSTER_ID_KEY: Final = "cluster.id"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class InvalidMetaProperties(ValueError):
    """The directory belongs to another broker or cluster, or the format has an unknown version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """What the file says; None where it says nothing."""

    broker_id: int | None
    cluster_id: str | None
    version: int = 0
    others: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


def read_meta_properties(disk: Disk, log_dir: str) -> MetaProperties | None:
    """Read ``meta.properties``; None if there is no file. Raise ``InvalidMetaProperties``."""
    path = f"{log_dir}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    values = _decode(disk.read(path).decode("utf-8", "replace"))
    version = values.pop(_VERSION_KEY, "0")
    if version not in ("0", "1"):
        raise InvalidMetaProperties(f"{path} has version {version}; 0 and 1 are supported")
    broker_id = values.pop(_BROKER_ID_KEYS[int(version)], None)
    if broker_id is not None and not broker_id.isdecimal():
        raise InvalidMetaProperties(f"{path} has the broker id {broker_id!r}, which is not a number")
    return MetaProperties(
        broker_id=None if broker_id is None else int(broker_id),
        cluster_id=values.pop(_CLUSTER_ID_KEY, None),
        version=int(version),
        others=values,
    )


def write_meta_properties(disk: Disk, log_dir: str, properties: MetaProperties) -> None:
    values = dict(properties.others)
    if properties.broker_id is not None:
        values[_BROKER_ID_KEYS[properties.version]] = str(properties.broker_id)
    values[_VERSION_KEY] = str(properties.version)
    if properties.cluster_id is not None:
        values[_CLUSTER_ID_KEY] = properties.cluster_id
    text = "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in values.items())
    disk.write_atomic(f"{log_dir}/{FILE_NAME}", f"#\n{text}".encode())


def _decode(text: str) -> dict[str, str]:
    """Decode Java's format as far as it is needed: comments, ``=`` or ``:``, backslash before a special character."""
    values: dict[str, str] = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            key, _, value = line.partition(":")
        values[_unescape(key.strip())] = _unescape(value.strip())
    return values


def _escape(text: str) -> str:
    return "".join(f"\\{character}" if character in "\\=:#! " else character for character in text)


def _unescape(text: str) -> str:
    parts = text.split("\\\\")
    return "\\".join(part.replace("\\", "") for part in parts)
