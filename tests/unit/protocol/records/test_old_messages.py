"""The layout of old messages, and lz4's two checksums."""

import lz4.frame
import pytest

from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.old_messages import (
    ChecksumMismatch,
    Message,
    encode_message,
    read_message,
    with_checksum_of_version_0,
    with_right_checksum,
)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(b"k", b"value"), (None, b""), (b"", None), (None, None)])
def test_message_survives_a_round_trip(magic: int, key: bytes | None, value: bytes | None) -> None:
    encoded = encode_message(magic, 7, 0x08 * magic, 1234, key, value)
    message = read_message(encoded, 12, 7, len(encoded) - 12)
    assert message == Message(7, magic, 0x08 * magic, 1234 if magic else -1, key, value)
    assert message.is_log_append_time == bool(magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_changed_byte_of_a_message_is_noticed_wherever_it_is(magic: int) -> None:
    encoded = encode_message(magic, 7, 0, 1234, b"key", b"value")
    for position in range(12, len(encoded)):
        changed = bytearray(encoded)
        changed[position] ^= 0x10
        with pytest.raises(ChecksumMismatch):
            read_message(bytes(changed), 12, 7, len(encoded) - 12)


@pytest.mark.parametrize(
    "settings",
    [{}, {"store_size": True}, {"content_checksum": True, "block_linked": False, "block_size": 4}],
    ids=["plain", "with-size", "with-checksum"],
)
def test_lz4_header_gets_the_checksum_that_the_library_accepts(settings: dict[str, int]) -> None:
    frame = lz4.frame.compress(b"abc" * 101, **({"store_size": False} | settings))
    assert with_right_checksum(frame) == frame
    old = with_checksum_of_version_0(frame)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(old)
    assert with_right_checksum(old) == frame


def test_lz4_frame_of_version_0_is_what_kafka_wrote() -> None:
    """The header checksum of Kafka 0.8 for independent blocks of 64 KiB is 0x1a; the right one is 0x82."""
    frame = bytes(compress(Compression.LZ4, b"abc"))
    assert frame[:7].hex() == "04224d18604082"
    assert with_checksum_of_version_0(frame)[:7].hex() == "04224d1860401a"


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x68\x40" + bytes(8), b"not lz4 at all"])
def test_bytes_without_a_whole_lz4_header_stay_as_they_are(frame: bytes) -> None:
    assert with_right_checksum(frame) == frame
