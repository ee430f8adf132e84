"""A seeded stream of frames that no client sends, over every API and version that is served.

What is wrong with a frame is one of the ``Kind``s: damaged batches in valid requests, strange values in valid requests,
and frames whose bytes are damaged. For each frame it is known what must become of it (``Fate``): a frame that is a
request gets a response, also if nothing in it makes sense; any other frame ends its connection. Whether damaged bytes
are still a request is what the decoders say; they have tests of their own.
"""

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, Final, NamedTuple

from oncelog.broker.handlers import all_handlers
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.compiler import decoder
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_request, parse_request_header
from oncelog.protocol.internal.topics import INTERNAL_TOPICS
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog.protocol.messages.create_topics import CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.join_group import JoinGroupRequest
from oncelog.protocol.messages.produce import ProduceRequest
from oncelog.protocol.messages.sync_group import SyncGroupRequest
from oncelog.protocol.primitives import DecodeError, encode_uvarint
from oncelog.protocol.records.compression import Compression
from oncelog.protocol.schema import Field, Message, layout
from oncelog.protocol.schema import Kind as FieldKind
from oncelog.protocol.topic_partition import TopicPartition
from tests.scenarios.bad_batches import BAD_BATCHES, BOMBS, BadBatch, good_batch
from tests.simulation import requests

SCRATCH: Final = "scratch"
"""The topic that strange requests may do anything to."""
MAX_FRAME_BYTES: Final = 4 << 20
"""``socket.request.max.bytes`` of the broker under test."""


class Fate(Enum):
    """What must become of a frame."""

    RESPONDED = auto()
    CLOSES = auto()
    """The connection ends, after the responses to the frames before."""
    SILENT = auto()
    """A produce without acks: no response, or the connection ends."""
    WAITS = auto()
    """A response may come, in its time: a fetch that waits for records, a member that waits for its group."""


class Frame(NamedTuple):
    """One malformed frame, with its size in front."""

    kind: "Kind"
    data: bytes
    fate: Fate
    request: type[Message] | None = None
    version: int = 0
    error: ErrorCode | None = None
    """What the one partition of a produce must be answered with."""

    @property
    def correlation_id(self) -> int:
        return int.from_bytes(self.data[8:12], "big", signed=True)

    def __repr__(self) -> str:
        name = "" if self.request is None else f"{self.request.__name__} v{self.version} "
        return f"{self.kind.name} {name}{self.fate.name} {self.data[:160].hex()}"


class Kind(Enum):
    """What is wrong with a frame; the value is how many of a thousand are so."""

    BAD_BATCH = 340
    STRANGE_VALUES = 300
    FLIPPED_BYTES = 120
    UNKNOWN_TAGS = 60
    TRUNCATED = 50
    HUGE_COUNT = 40
    TRAILING_BYTES = 30
    NOT_UTF8 = 15
    NOT_SERVED = 16
    NOISE = 14
    BAD_SIZE = 10
    CUT_OFF = 3
    BOMB = 2


NAMES: Final = (
    SCRATCH, "", "a", "fuzz", "x" * 249, "x" * 250, "y" * 32_767, "..", "../../etc/passwd", "\0", "\0" * 200, "ü" * 100,
    "\U0001f4a5", "%s%n{0}", "__consumer_offsets", "__transaction_state", "consumer", "range", "1", "-1", "null",
    "cleanup.policy", "retention.ms", "compact", "(((((a*)*)*)*)*)*$", "\n[ERROR] forged line\n",
)  # fmt: skip
_RANGES: Final = {
    FieldKind.INT8: 7, FieldKind.INT16: 15, FieldKind.INT32: 31, FieldKind.INT64: 63,
}  # fmt: skip
_UNSIGNED: Final = {FieldKind.UINT16: 16, FieldKind.UINT32: 32}
_MOST_NEW_PARTITIONS: Final = 20
_MAX_MUTANTS: Final = 40
_HUGE: Final = (
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\xff\xff\xff", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\0", b"\x7f\xff", b"\xff\xff",
)  # fmt: skip


@cache
def response_class(request: type[Message]) -> type[Message]:
    """The class that answers a request: its namesake in the same module."""
    module = importlib.import_module(request.__module__)
    found: type[Message] = getattr(module, request.__name__.replace("Request", "Response"))
    return found


class FrameFactory:
    """Makes frames, the same ones for the same seed."""

    def __init__(self, seed: int, topic_ids: Sequence[bytes] = ()) -> None:
        self._rng = random.Random(seed)
        self._ids = (bytes(16), b"\xff" * 16, *topic_ids)
        self._served = {int(h.api_key): (h.request_type, h.versions) for h in all_handlers()}
        self._requests = [(request, v) for request, versions in self._served.values() for v in versions]
        self._templates = {case: self._encoded(*case) for case in self._requests}
        self._makers: dict[Kind, Callable[[], Frame]] = {
            Kind.BAD_BATCH: self._bad_batch,
            Kind.BOMB: self._bomb,
            Kind.STRANGE_VALUES: lambda: self._judged(Kind.STRANGE_VALUES, self._encoded(*self._case())),
            Kind.NOT_SERVED: self._not_served,
            Kind.BAD_SIZE: self._bad_size,
            Kind.CUT_OFF: self._cut_off,
        }
        self._mutations: dict[Kind, Callable[[bytearray], None]] = {
            Kind.FLIPPED_BYTES: self._flip,
            Kind.UNKNOWN_TAGS: self._add_tags,
            Kind.TRUNCATED: self._truncate,
            Kind.HUGE_COUNT: self._put_huge,
            Kind.TRAILING_BYTES: lambda frame: frame.extend(self._rng.randbytes(self._rng.randint(1, 300))),
            Kind.NOT_UTF8: self._spoil_text,
            Kind.NOISE: self._become_noise,
        }

    def frames(self, count: int) -> Iterator[Frame]:
        kinds = list(Kind)
        for kind in self._rng.choices(kinds, [kind.value for kind in kinds], k=count):
            yield self.frame(kind)

    def frame(self, kind: Kind) -> Frame:
        maker = self._makers.get(kind)
        return self._mutant(kind) if maker is None else maker()

    # Valid requests

    def _case(self) -> tuple[type[Message], int]:
        return self._rng.choice(self._requests)

    def _encoded(self, request: type[Message], version: int) -> bytes:
        message = self._message(request, version)
        while _is_costly(message):
            message = self._message(request, version)
        client_id = self._rng.choices((None, "", "fuzz", "ü" * 99, "z" * 32_767), (30, 30, 30, 30, 1))[0]
        return b"".join(encode_request(self._rng.randint(-(2**31), 2**31 - 1), client_id, message, version))

    def _message(self, cls: type[Message], version: int) -> Any:
        shape = layout(cls, version)
        message = cls(**{field.name: self._value(field, version) for field in shape.regular})
        for field in shape.tagged:
            if self._rng.random() < 0.3:
                setattr(message, field.name, self._value(field, version))
        if isinstance(message, FetchRequest) and self._rng.random() < 0.9:
            message.max_wait_ms = 0
        return message

    def _value(self, field: Field, version: int) -> Any:
        rng, kind = self._rng, field.kind
        if version in field.nullable and rng.random() < 0.15:
            return None
        match kind:
            case FieldKind.STRING:
                return rng.choice(NAMES[:4] if rng.random() < 0.6 else NAMES)
            case FieldKind.ARRAY:
                assert field.element is not None
                element = field.element
                count = rng.choice((0, 1, 1, 1, 2)) if rng.random() < 0.99 else 30
                return [self._value(element, version) for _ in range(count)]
            case FieldKind.STRUCT:
                assert field.struct is not None
                return self._message(field.struct, version)
            case FieldKind.BOOL:
                return rng.random() < 0.5
            case FieldKind.FLOAT64:
                return rng.choice((0.0, -1.0, float("inf"), float("nan")))
            case FieldKind.UUID:
                return rng.choice(self._ids)
            case FieldKind.BYTES:
                return rng.randbytes(rng.choice((0, 1, 20, 3000)))
            case FieldKind.RECORDS:
                return self._records()
            case _:
                return self._integer(kind)

    def _records(self) -> bytes:
        options: dict[str, Any] = {}
        if self._rng.random() < 0.5:
            options = {"producer_id": self._rng.choice((0, 1, 2, 1000)), "producer_epoch": 0}
            options |= {
                "base_sequence": self._rng.choice((0, 1, 2**31 - 1)),
                "is_transactional": self._rng.random() < 0.5,
            }
        codec = self._rng.choice((Compression.NONE, Compression.LZ4))
        return bytes(good_batch(self._rng, compression=codec, **options))

    def _integer(self, kind: FieldKind) -> int:
        rng = self._rng
        if kind in _UNSIGNED:
            return rng.choice((0, 1, (1 << _UNSIGNED[kind]) - 1))
        bits = _RANGES[kind]
        low, high = -(1 << bits), (1 << bits) - 1
        return rng.choice((0, 0, 0, 1, 1, -1, 2, 3, -2, low, high, rng.randint(low, high)))

    # Damaged batches

    def _bad_batch(self) -> Frame:
        return self.produce(Kind.BAD_BATCH, self._rng.choice(list(BAD_BATCHES.values())))

    def _bomb(self) -> Frame:
        return self.produce(Kind.BOMB, self._rng.choice(list(BOMBS.values())))

    def produce(self, kind: Kind, bad: BadBatch, version: int | None = None) -> Frame:
        """A produce of one bad batch in a request with which nothing is wrong."""
        version = self._rng.choice(bad.versions) if version is None else version
        acks = self._rng.choice((-1, 1)) if self._rng.random() < 0.98 else 0
        records = bad.make(self._rng)
        request = requests.produce(
            TopicPartition(bad.topic, 0), records, transactional_id=bad.transactional_id, acks=acks
        )
        data = b"".join(encode_request(self._rng.randint(0, 2**31 - 1), "fuzz", request, version))
        if acks == 0:
            return Frame(kind, data, Fate.SILENT, ProduceRequest, version)
        return Frame(kind, data, Fate.RESPONDED, ProduceRequest, version, bad.error)

    # Damaged bytes

    def _mutant(self, kind: Kind) -> Frame:
        """A frame damaged anew until nothing in it would make the broker work for long."""
        for _ in range(_MAX_MUTANTS):
            data = bytearray(self._templates[self._case()])
            self._mutations[kind](data)
            data[:4] = (len(data) - 4).to_bytes(4, "big")
            frame = self._judged(kind, bytes(data))
            if frame.request is None or not _is_costly(_decoded(frame)):
                return frame
        raise AssertionError(f"no {kind.name} frame that is cheap enough")

    def _judged(self, kind: Kind, data: bytes) -> Frame:
        """The frame with what must become of it."""
        body = memoryview(data)[4:]
        try:
            header, position = parse_request_header(body)
            request, versions = self._served[header.api_key]
            version = header.api_version
            if version not in versions:
                responded = header.api_key == ApiKey.API_VERSIONS
                return Frame(kind, data, Fate.RESPONDED if responded else Fate.CLOSES, request if responded else None)
            message, _ = decoder(request, version)(body, position)
        except (DecodeError, KeyError):
            return Frame(kind, data, Fate.CLOSES)
        return Frame(kind, data, _fate(message), request, version)

    def _flip(self, frame: bytearray) -> None:
        for _ in range(self._rng.choice((1, 1, 2, 8))):
            frame[self._place(frame)] = self._rng.randrange(256)

    def _place(self, frame: bytearray) -> int:
        """Somewhere in a frame: mostly in its body."""
        return self._rng.randrange(min(14, len(frame) - 1) if self._rng.random() < 0.9 else 4, len(frame))

    def _add_tags(self, frame: bytearray) -> None:
        """Tagged fields that nobody knows, at the end, where a flexible request's last count of tags stands."""
        rng = self._rng
        tags = b"".join(
            encode_uvarint(rng.choice((5, 127, 128, 2**31))) + encode_uvarint(size) + rng.randbytes(size)
            for size in [rng.choice((0, 1, 200)) for _ in range(rng.randint(1, 5))]
        )
        frame[-1:] = encode_uvarint(rng.choice((1, 1, 2, 2**31))) + tags

    def _truncate(self, frame: bytearray) -> None:
        del frame[self._place(frame) :]

    def _put_huge(self, frame: bytearray) -> None:
        huge = self._rng.choice(_HUGE)
        place = self._place(frame)
        frame[place : place + self._rng.choice((0, len(huge)))] = huge

    def _spoil_text(self, frame: bytearray) -> None:
        place = frame.find(self._rng.choice((b"scratch", b"fuzz", b"consumer", b"xxxxxxx")), 14)
        frame[place : place + 3] = self._rng.choice((b"\xff\xfe\xfd", b"\xed\xa0\x80", b"\xc0\xaf\xc0"))

    def _become_noise(self, frame: bytearray) -> None:
        start = self._rng.choice((4, 14))
        frame[start:] = self._rng.randbytes(self._rng.choice((0, 1, 9, 50, 2000)))

    # Damaged headers and sizes

    def _not_served(self) -> Frame:
        data = bytearray(self._templates[self._case()])
        place, low, high = self._rng.choice(
            ((4, 0, 100), (6, -2, 25), (4, -(2**15), 2**15 - 1), (6, -(2**15), 2**15 - 1))
        )
        data[place : place + 2] = self._rng.randint(low, high).to_bytes(2, "big", signed=True)
        frame = self._judged(Kind.NOT_SERVED, bytes(data))
        return frame if frame.request is None or not _is_costly(_decoded(frame)) else self._not_served()

    def _bad_size(self) -> Frame:
        size = self._rng.choice((-1, -(2**31), 2**31 - 1, MAX_FRAME_BYTES + 1, 0, 1, 3, 7, 9))
        body = self._templates[self._case()][4:] if not 0 <= size < 10 else self._rng.randbytes(size)
        return Frame(Kind.BAD_SIZE, size.to_bytes(4, "big", signed=True) + body, Fate.CLOSES)

    def _cut_off(self) -> Frame:
        """A frame whose rest never comes."""
        whole = self._templates[self._case()]
        claimed = self._rng.choice((len(whole), MAX_FRAME_BYTES))
        return Frame(
            Kind.CUT_OFF, claimed.to_bytes(4, "big") + whole[4 : self._rng.randrange(4, len(whole))], Fate.WAITS
        )


def _decoded(frame: Frame) -> Message:
    assert frame.request is not None
    body = memoryview(frame.data)[4:]
    header, position = parse_request_header(body)
    if header.api_version != frame.version:  # ApiVersions, in a version that nobody knows.
        return frame.request()
    return decoder(frame.request, frame.version)(body, position)[0]


def _fate(message: Message) -> Fate:
    if isinstance(message, ProduceRequest) and message.acks == 0:
        return Fate.SILENT
    if isinstance(message, FetchRequest) and message.max_wait_ms > 0:
        return Fate.WAITS
    return Fate.WAITS if isinstance(message, JoinGroupRequest | SyncGroupRequest) else Fate.RESPONDED


def _is_costly(message: Message) -> bool:
    """Whether it asks, in a valid way, for what a test has no time for: many partitions, or no coordinators."""
    if isinstance(message, DeleteTopicsRequest):
        names = [*message.topic_names, *(topic.name for topic in message.topics)]
        return not INTERNAL_TOPICS.isdisjoint(names)
    if isinstance(message, CreateTopicsRequest):
        wanted = [topic.num_partitions for topic in message.topics]
    elif isinstance(message, CreatePartitionsRequest):
        wanted = [topic.count for topic in message.topics]
    else:
        return False
    return any(_MOST_NEW_PARTITIONS < count <= 10_100 for count in wanted)
