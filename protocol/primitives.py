"""What the compiled codecs lean on where one line of generated code is not enough.

Lengths come in two forms. Old versions put a signed 16-bit (strings) or 32-bit (arrays, bytes) length in front, and -1
stands for null. Flexible versions (KIP-482) put length + 1 as an unsigned base-128 varint, and 0 stands for null. The
first byte of such a varint is a fixed-width field like any other, so generated code reads and writes it in the same
``struct`` call as its neighbours and comes here only for the bytes after it.

A flexible structure ends with tagged fields: their number, then (tag, size, value) for each, all three as varints.
A reader that does not know a tag skips its value.
"""

from collections.abc import Callable
from typing import Any, Final

from oncelog.protocol.schema import Buffer, Kind, SharedList

FIXED: Final = {
    Kind.BOOL: "?",
    Kind.INT8: "b",
    Kind.INT16: "h",
    Kind.UINT16: "H",
    Kind.INT32: "i",
    Kind.UINT32: "I",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
    Kind.UUID: "16s",
}
"""The fixed-width kinds and their ``struct`` codes."""

MAX_STRING_BYTES: Final = 32_767
"""Compact strings could be longer; Kafka refuses them at this length in every version."""

MAX_TAGGED_FIELDS: Final = 128
"""Of one structure. Kafka has no such limit; it declares at most a handful of tags anywhere."""

_SHORT_UVARINTS: Final = {byte: bytes((byte,)) for byte in range(0x80)}
"""The encodings of one byte, made once: nearly all that are needed."""

COPIED_RECORDS_BYTES: Final = 1024
"""Up to here copying records into the surrounding bytes is cheaper than one more buffer for the socket."""

_UVARINT_BITS: Final = 32


class DecodeError(ValueError):
    """Bytes that are not the message they should be."""


class EncodeError(ValueError):
    """A message that holds a value which its version cannot carry."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint: (value, position after it). IndexError if the buffer ends first."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return finish_uvarint(buffer, position + 1, first)


def finish_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read on after the first byte of a varint, which had its continuation bit set."""
    value = first & 0x7F
    for shift in range(7, _UVARINT_BITS, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _UVARINT_BITS:
                break
            return value, position
    raise DecodeError("a varint longer than 32 bits")


def encode_uvarint(value: int) -> bytes:
    """Return the unsigned varint of an integer below 2³²."""
    short = _SHORT_UVARINTS.get(value)
    if short is not None:
        return short
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_tag(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Read what stands before a tagged value: (tag, position of the value, position after the value)."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > end - position:
        raise DecodeError(f"tagged field {tag} of {size} bytes where {end - position} are left")
    return tag, position, position + size


def finish_tag_count(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read on after the first byte of a number of tagged fields. Raises DecodeError above ``MAX_TAGGED_FIELDS``."""
    count, position = finish_uvarint(buffer, position, first)
    if count > MAX_TAGGED_FIELDS:
        raise DecodeError(f"{count} tagged fields: at most {MAX_TAGGED_FIELDS} are accepted")
    return count, position


def skip_tags(buffer: Buffer, position: int, count: int, end: int) -> int:
    """Step over ``count`` tagged fields, where ``count`` is still the first byte of its varint."""
    if count > 0x7F:
        count, position = finish_tag_count(buffer, position, count)
    for _ in range(count):
        _, _, position = read_tag(buffer, position, end)
    return position


def bad_length(field: str, length: int, left: int) -> DecodeError:
    """Return the error for a length or count that is null where it must not be, or exceeds what was received."""
    if length < 0:
        return DecodeError(f"{field} is null, which this version does not allow")
    return DecodeError(f"{field} has length {length} where {left} bytes are left")


def too_many_elements(field: str) -> DecodeError:
    """Return the error for a request whose arrays and tagged fields have more elements than allowed."""
    return DecodeError(f"more elements than a request of this kind may have, counted up to {field}")


def bad_tag(field: str) -> DecodeError:
    """Return the error for a tagged field whose value is shorter or longer than its declared size."""
    return DecodeError(f"tagged field {field} does not have the size it declares")


def put_records(parts: list[Buffer], out: bytearray, records: Buffer | list[Buffer], size: int) -> bytearray:
    """Add records to a message under construction and return the ``bytearray`` that takes what follows them.

    Large records are not copied: ``out`` and they become separate parts, and a new ``bytearray`` begins.
    """
    buffers = records if isinstance(records, list) else [records]
    if size <= COPIED_RECORDS_BYTES:
        for buffer in buffers:
            out += buffer
        return out
    parts.append(out)
    parts += buffers
    return bytearray()


def put_shared(
    parts: list[Buffer],
    out: bytearray,
    elements: SharedList[Any],
    version: int,
    encode_elements: Callable[[list[Any]], bytearray],
) -> bytearray:
    """Add the encoding of a list that several messages hold, made once; else as ``put_records``."""
    encoded = elements.encodings.get(version)
    if encoded is None:
        encoded = elements.encodings[version] = bytes(encode_elements(elements))
    return put_records(parts, out, encoded, len(encoded))
