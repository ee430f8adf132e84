"""``partition.metadata``: the topic id of a partition's directory, so that a topic is not mistaken for its successor.

Two lines, the id in Kafka's form (16 bytes, URL-safe base64 without padding)::

    version: 0
    topic_id: vmhv5Iu5S2iNnc1b0LwGug
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final

from oncelog.broker.storage.disk import Disk

FILE_NAME: Final = "partition.metadata"


def encode_uuid(uuid: bytes) -> str:
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def decode_uuid(text: str) -> bytes:
    """Decode a UUID of 22 characters. Raise ``ValueError``."""
    try:
        uuid = urlsafe_b64decode(text.encode("ascii") + b"==")
    except (Base64Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not a UUID") from error
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a UUID")
    return uuid


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Read the topic id; None if there is no file, or only what a power loss left of one."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    lines = disk.read(path).decode("utf-8", "replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        return None
    try:
        return decode_uuid(fields["topic_id"])
    except ValueError:
        return None


def write_topic_id(disk: Disk, directory: str, topic_id: bytes, *, known: bytes | None) -> str:
    """Write the file, unsynced, unless it is known to say this. Return its path."""
    path = f"{directory}/{FILE_NAME}"
    if topic_id != known:
        disk.write_atomic(path, encode_topic_id(topic_id), sync=False)
    return path


def encode_topic_id(topic_id: bytes) -> bytes:
    """Return the content of the file."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()
