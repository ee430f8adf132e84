"""From a declaration to the codec that serves: one flat function per (message class, version) and direction.

The source text of a function is written from the declared fields, compiled on first use and kept on the message class.
It has no calls per field: nested structures are inlined as nested loops, and a run of adjacent fixed-width fields,
length prefixes and first bytes of varints becomes one precompiled ``struct.Struct`` call. For example, the partitions
of a ProduceResponse v9 are read and written by (abridged)::

    for _ in range(n):
        m2 = new(PartitionProduceResponse)
        add2(m2)
        m2.index, m2.error_code, m2.base_offset, m2.log_append_time_ms, m2.log_start_offset, n = run3(b, p)
        ...
    for m2 in m1.partition_responses:
        n3 = len(m2.record_errors) + 1
        out += run4(m2.index, m2.error_code, ..., n3 if n3 < 128 else n3 & 127 | 128)
        ...

Rules that the generated code keeps:

* A count or length is compared with the bytes that are left before anything is allocated for it.
* The elements of all arrays of a message are counted together, and so are tagged fields: an element that takes one byte
  costs a hundred in memory and up to a microsecond, so bytes alone do not bound the work.
* Reading past the end is an exception of ``struct`` or of indexing, turned into ``DecodeError`` once, around all of it.
* ``records`` are views into the frame; they are not copied on the way in nor (above a small size) on the way out.
* Encoding checks nothing on the way: when it fails, ``oncelog.protocol.blame`` looks for the field to name in
  ``EncodeError``.
* The elements of a ``SharedList`` are encoded for the first message that holds it, and not copied into the others.
* Tagged fields with their default value are left out; unknown ones are stepped over.
"""

from typing import Protocol, TypeVar

from oncelog.protocol.decoder_source import UNLIMITED_ELEMENTS, DecoderSource
from oncelog.protocol.encoder_source import EncoderSource
from oncelog.protocol.schema import Buffer, Message

M = TypeVar("M", bound=Message)
M_contra = TypeVar("M_contra", bound=Message, contravariant=True)
M_co = TypeVar("M_co", bound=Message, covariant=True)


class Decoder(Protocol[M_co]):
    """Reads a message at a position and returns it with the position after it; raises ``DecodeError``.

    ``max_elements`` bounds the array elements and tagged fields of the whole message, at every depth together.
    """

    def __call__(
        self, buffer: Buffer, position: int, max_elements: int = UNLIMITED_ELEMENTS, /
    ) -> tuple[M_co, int]: ...


class Encoder(Protocol[M_contra]):
    """Appends a message to ``start`` (or begins anew) and returns the buffers that hold all of it."""

    def __call__(self, message: M_contra, start: bytearray | None = None) -> list[Buffer]: ...


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Return the function from (buffer, position) to (message, position after it); it raises ``DecodeError``."""
    try:
        return cls._decoders[version]
    except KeyError:
        return cls._decoders.setdefault(version, DecoderSource(cls, version).compile())


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Return the function from a message to the buffers of its encoding; it raises ``EncodeError``."""
    try:
        return cls._encoders[version]
    except KeyError:
        return cls._encoders.setdefault(version, EncoderSource(cls, version).compile())


def decode(cls: type[M], version: int, buffer: Buffer) -> M:
    """Decode the message at the start of ``buffer``; as in Kafka, bytes after it are ignored."""
    return decoder(cls, version)(buffer, 0)[0]


def encode(message: Message, version: int) -> bytes:
    """Return the message's encoding in one piece."""
    return b"".join(encoder(type(message), version)(message))
