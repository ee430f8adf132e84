"""Variable-length integers inside a record: base-128 groups, least significant first, zig-zagged so that -1 is short.

A record's lengths and deltas are almost always one byte, so a hot walk reads that byte inline and comes here for the
rest. Reading past the end of the buffer is an ``IndexError``; the walk of a record knows what that means there.
"""

from typing import Final

Buffer = bytes | bytearray | memoryview

_MAX_BYTES: Final = 10
"""Of a 64-bit integer: nine groups of seven bits and one of one bit."""
_SHORT: Final = tuple(bytes((byte,)) for byte in range(0x80))
"""The encodings of one byte, made once: nearly all that are needed."""


def encode_varint(value: int) -> bytes:
    """Return the zig-zag encoding of an integer of up to 64 bits (both of Kafka's widths look the same)."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag < 0x80:
        return _SHORT[zigzag]
    if zigzag < 0x4000:
        return b"%c%c" % (zigzag & 0x7F | 0x80, zigzag >> 7)
    return _encode_long(zigzag)


def _encode_long(zigzag: int) -> bytes:
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises ValueError if it does not end within 64 bits, IndexError if the buffer ends first.
    """
    byte = buffer[position]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    following = buffer[position + 1]
    if following < 0x80:
        return (byte & 0x7F | following << 7) >> 1 ^ -(byte & 1), position + 2
    third = buffer[position + 2]
    if third < 0x80:
        return (byte & 0x7F | (following & 0x7F) << 7 | third << 14) >> 1 ^ -(byte & 1), position + 3
    return _decode_long(buffer, position)


def _decode_long(buffer: Buffer, position: int) -> tuple[int, int]:
    zigzag = shift = 0
    for index in range(position, position + _MAX_BYTES):
        byte = buffer[index]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> 64:
                break
            return zigzag >> 1 ^ -(zigzag & 1), index + 1
        shift += 7
    raise ValueError("a varint longer than 64 bits")
