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

``iter_decompressed`` and ``Compressor`` work block by block, so that a caller can pause between two blocks and need not
hold what it has seen.
"""

import struct
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

import cramjam
import lz4.frame

from oncelog.protocol.records.varint import Buffer

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
_SMALL_BLOCK_SIZE: Final = 64 * 1024

_BLOCK_LENGTH: Final = struct.Struct(">i")


COMPRESSION_ERRORS: Final = (zlib.error, RuntimeError, zstd.ZstdError, cramjam.CompressionError)
"""Errors of the codecs (RuntimeError is lz4's) besides MemoryError when they compress, which succeeds given memory."""


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
    """Return the compressed form of ``data``; for NONE ``data`` itself."""
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
    """Decompress ``data``. Raises CorruptRecord if it is malformed, DecompressionBomb beyond ``max_bytes``."""
    return _joined(list(_decompressed(codec, data, max_bytes, _BLOCK_SIZE)))


def iter_decompressed(codec: Compression, data: Buffer, *, max_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks of at most 64 KiB, each decompressed when it is needed.

    An error in ``data`` is raised where it is found, at the latest after the last block.
    """
    return _decompressed(codec, data, max_bytes, _SMALL_BLOCK_SIZE)


def decompress_in_steps(codec: Compression, data: Buffer, *, max_bytes: int) -> Generator[None, None, bytes]:
    """Decompress like ``decompress``, and yield after each mebibyte."""
    blocks: list[bytes] = []
    for block in _decompressed(codec, data, max_bytes, _BLOCK_SIZE):
        blocks.append(block)
        yield
    return _joined(blocks)


def compress_in_steps(codec: Compression, parts: Sequence[bytes]) -> Generator[None, None, bytes | bytearray]:
    """Compress the parts as one piece like ``compress``, and yield after each 64 KiB."""
    if sum(map(len, parts)) <= _SMALL_BLOCK_SIZE:
        return compress(codec, b"".join(parts))
    compressor = new_compressor(codec)
    compressed: list[bytes] = []
    left = _SMALL_BLOCK_SIZE
    for part in parts:
        for piece in _pieces(part, _SMALL_BLOCK_SIZE):
            compressed.append(compressor.compress(piece))
            left -= len(piece)
            if left <= 0:
                left = _SMALL_BLOCK_SIZE
                yield
    compressed.append(compressor.flush())
    return b"".join(compressed)


def _decompressed(codec: Compression, data: Buffer, max_bytes: int, block_size: int) -> Iterator[bytes]:
    match codec:
        case Compression.NONE:
            if len(data) > max_bytes:
                raise DecompressionBomb(f"{len(data)} bytes where {max_bytes} are allowed")
            return iter((bytes(data),)) if len(data) <= block_size else _pieces(data, block_size)
        case Compression.GZIP:
            return _drain(_GzipDecompressor(), data, max_bytes, block_size)
        case Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes, block_size)
        case Compression.LZ4:
            return _drain(lz4.frame.LZ4FrameDecompressor(), data, max_bytes, block_size)
        case Compression.ZSTD:
            return _drain(zstd.ZstdDecompressor(), data, max_bytes, block_size)


def _joined(blocks: list[bytes]) -> bytes:
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _pieces(data: Buffer, size: int) -> Iterator[bytes]:
    if len(data) <= size:
        yield bytes(data)
        return
    view = memoryview(data)
    for start in range(0, len(data), size):
        yield bytes(view[start : start + size])


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


def _drain(decompressor: _Decompressor, data: Buffer, max_bytes: int, block_size: int) -> Iterator[bytes]:
    size = 0
    while not decompressor.eof:
        try:
            block = decompressor.decompress(data, min(block_size, max_bytes - size + 1))
        except (zlib.error, zstd.ZstdError, RuntimeError) as error:  # lz4 raises RuntimeError
            raise CorruptRecord(f"not decompressible: {error}") from error
        data = b""
        if not block and not decompressor.eof:
            raise CorruptRecord("the compressed records are cut off")
        size += len(block)
        if size > max_bytes:
            raise DecompressionBomb(f"more than {max_bytes} bytes decompressed")
        yield block
    if decompressor.unused_data:
        raise CorruptRecord("bytes after the end of the compressed records")


class Compressor(Protocol):
    """Compresses a stream of blocks."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what can be written after this block, which may be nothing yet."""

    def flush(self) -> bytes:
        """Return what is left to be written."""


def new_compressor(codec: Compression) -> Compressor:
    """Return a compressor whose output has the same form as that of ``compress``."""
    match codec:
        case Compression.NONE:
            return _Copier()
        case Compression.GZIP:
            return zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
        case Compression.SNAPPY:
            return _XerialCompressor()
        case Compression.LZ4:
            return _Lz4Compressor()
        case Compression.ZSTD:
            return zstd.ZstdCompressor()


class _Copier:
    """Compresses nothing."""

    __slots__ = ()

    def compress(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Lz4Compressor:
    """One frame; its header comes with the first block."""

    __slots__ = ("_begun", "_lz4")

    def __init__(self) -> None:
        self._lz4 = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
        self._begun: bytes = self._lz4.begin()

    def compress(self, data: bytes) -> bytes:
        begun, self._begun = self._begun, b""
        compressed: bytes = begun + self._lz4.compress(data)
        return compressed

    def flush(self) -> bytes:
        compressed: bytes = self._begun + self._lz4.flush()
        return compressed


class _XerialCompressor:
    """Gathers whole blocks of the framing."""

    __slots__ = ("_gathered", "_header")

    def __init__(self) -> None:
        self._header = _XERIAL_HEADER
        self._gathered = b""

    def compress(self, data: bytes) -> bytes:
        self._gathered += data
        whole = len(self._gathered) // _XERIAL_BLOCK_SIZE * _XERIAL_BLOCK_SIZE
        compressed = self._header + _compress_xerial_blocks(self._gathered[:whole])
        self._gathered, self._header = self._gathered[whole:], b""
        return compressed

    def flush(self) -> bytes:
        return self._header + _compress_xerial_blocks(self._gathered)


def _compress_xerial(data: bytes | bytearray) -> bytes:
    return _XERIAL_HEADER + _compress_xerial_blocks(data)


def _compress_xerial_blocks(data: bytes | bytearray) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int, block_size: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield from _pieces(_decompress_snappy_block(view, max_bytes), block_size)
        return
    position = len(_XERIAL_HEADER)
    while position < len(view):
        block = _xerial_block(view, position)
        position += _BLOCK_LENGTH.size + len(block)
        decompressed = _decompress_snappy_block(block, max_bytes)
        max_bytes -= len(decompressed)
        yield from _pieces(decompressed, block_size)
    if position != len(view):
        raise CorruptRecord("the snappy framing is cut off")


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
