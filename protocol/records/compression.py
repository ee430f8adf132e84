"""The codecs of a record batch: the records after the header are compressed as one piece.

What is written is what the Java client writes, because the Java client must read it:

* gzip: one member;
* snappy: the xerial framing of snappy-java (an 8-byte magic, two version numbers, then blocks of at most 32 KiB with a
  four-byte length each); raw snappy, which librdkafka writes, is read too;
* lz4: one frame of *independent* 64 KiB blocks (Java refuses linked ones) without content size or checksum;
* zstd: one frame.

Every decompression is bounded. The streaming codecs are drained block by block and stop at the first byte above the
bound; snappy declares its size in front and is refused before anything is allocated. Bytes after the frame are an
error: no client writes several frames, and a megabyte of empty ones would take minutes to walk.
"""

import struct
import sys
import zlib
from enum import IntEnum
from typing import Final, Protocol

import cramjam
import lz4.frame

from protocol.records.varint import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, lowest compatible version."""
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_GZIP_WINDOW_BITS: Final = 31
_BLOCK_SIZE: Final = 1024 * 1024

_BLOCK_LENGTH: Final = struct.Struct(">i")


class CorruptRecord(ValueError):
    """The bytes are not what a well-formed record batch consists of."""


class DecompressionBomb(CorruptRecord):
    """The compressed bytes may be well-formed, but hold more than the caller is willing to hold."""


class Compression(IntEnum):
    """The codec in the three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: bytes | bytearray) -> bytes | bytearray:
    """The compressed form of ``data``; for NONE ``data`` itself."""
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return zlib.compress(data, wbits=_GZIP_WINDOW_BITS)
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            compressed: bytes = lz4.frame.compress(
                data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
            )
            return compressed
        case Compression.ZSTD:
            return zstd.compress(data)


def decompress(codec: Compression, data: Buffer, *, max_bytes: int) -> bytes:
    """The bytes that ``data`` stands for; CorruptRecord if none, DecompressionBomb if more than ``max_bytes``."""
    match codec:
        case Compression.NONE:
            if len(data) > max_bytes:
                raise DecompressionBomb(f"{len(data)} bytes where {max_bytes} are allowed")
            return bytes(data)
        case Compression.GZIP:
            return _drain(_GzipDecompressor(), data, max_bytes)
        case Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Compression.LZ4:
            return _drain(lz4.frame.LZ4FrameDecompressor(), data, max_bytes)
        case Compression.ZSTD:
            return _drain(zstd.ZstdDecompressor(), data, max_bytes)


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


class _GzipDecompressor:
    """zlib hands the unread input back where the others keep it."""

    __slots__ = ("_zlib",)

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        return self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)


def _drain(decompressor: _Decompressor, data: Buffer, max_bytes: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    while not decompressor.eof:
        try:
            block = decompressor.decompress(b"" if blocks else data, min(_BLOCK_SIZE, max_bytes - size + 1))
        except (zlib.error, zstd.ZstdError, RuntimeError) as error:  # lz4 raises RuntimeError
            raise CorruptRecord(f"not decompressible: {error}") from error
        if not block and not decompressor.eof:
            raise CorruptRecord("the compressed records are cut off")
        size += len(block)
        if size > max_bytes:
            raise DecompressionBomb(f"more than {max_bytes} bytes decompressed")
        blocks.append(block)
    if decompressor.unused_data:
        raise CorruptRecord("bytes after the end of the compressed records")
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _compress_xerial(data: bytes | bytearray) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        block = _xerial_block(view, position)
        position += _BLOCK_LENGTH.size + len(block)
        blocks.append(_decompress_snappy_block(block, max_bytes))
        max_bytes -= len(blocks[-1])
    if position != len(view):
        raise CorruptRecord("the snappy framing is cut off")
    return b"".join(blocks)


def _xerial_block(view: memoryview, position: int) -> memoryview:
    start = position + _BLOCK_LENGTH.size
    if start > len(view):
        raise CorruptRecord("the snappy framing is cut off")
    (length,) = _BLOCK_LENGTH.unpack_from(view, position)
    if not 0 <= length <= len(view) - start:
        raise CorruptRecord(f"a snappy block of {length} bytes where {len(view) - start} are left")
    return view[start : start + length]


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise DecompressionBomb(f"{size} bytes of snappy where {max_bytes} are allowed")
        decompressed = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, decompressed)
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"not decompressible: {error}") from error
    if written != size:
        raise CorruptRecord("a snappy block is shorter than it declares")
    return bytes(decompressed)
