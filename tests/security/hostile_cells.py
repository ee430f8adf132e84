"""Names that try to leave their place, lines that try to forge the log, and payloads that try to fill the memory."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.errors import ClientError, ConnectionLost
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.records.compression import Compression, compress
from oncelog.protocol.records.varint import encode_varint
from oncelog.protocol.schema import Message
from tests.processes import OncelogProcess, free_port
from tests.scenarios.bad_batches import with_payload
from tests.scenarios.sasl_states import error_codes
from tests.security.cell import Cell
from tests.unit.protocol.built import built
from tests.unit.protocol.declared import message_classes

CONTAINED: Final = "contained"
SECONDS: Final = 10.0
NAMES: Final = 200
LOG_LINES: Final = 30
MEBIBYTE: Final = 1 << 20
MOST_MEMORY: Final = 192 * MEBIBYTE
"""By which a broker may have grown after all bombs: four of them at once, decompressed as far as is allowed."""
_LOG_START: Final = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] |\[KafkaServer|\s|\Z")
_PARTITION: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}-\d+(\.[0-9a-f]{32}-delete)?")
_FORGED: Final = "FORGED"
_SEEDS: Final = (
    "", ".", "..", "/", "//", "../..", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "..\\..", "~",
    "~root", "$HOME", "\0", "a\0b", "\n", "a\nb", "\r\n", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e",
    "\ufeff", "%2e%2e%2f", "%00", "%s%n", "${jndi:ldap://x}", "${env:HOME}", "{{7*7}}", "'; drop table", '"',
    "'", "<script>", "*", "?", "|", "&", ";", "`id`", "$(id)", "con", "nul", "a" * 249, "a" * 250,
    "a" * 10_000, "ä" * 200, "\U0001f4a3" * 60, "__consumer_offsets", "__transaction_state", "kafka-cluster",
    "<default>", "-1", "0", "a-0", "a-0.delete", ".lock", "meta.properties",
    "recovery-point-offset-checkpoint", "zookeeper", "/brokers/ids/1", "/kafka-acl", "User:admin", "User:*",
    "a:b", "a=b", "a,b", "a b", " a", "a ", "\t", "{}", '{"a":1}', "[]", "null", "None", "true", "1e999",
    "--help", "-rf",
)  # fmt: skip


def hostile_names(count: int) -> list[str]:
    rng = Random(1)
    names = list(_SEEDS)
    while len(names) < count:
        names.append("".join(rng.choice(_SEEDS)[:40] for _ in range(rng.randint(2, 4))))
    return names[:count]


def _topic(name: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 5000}


def _committed(group: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": group[:100]}]
    topics = [{"name": "t", "partitions": partitions}]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}


def _acl(name: str) -> dict[str, Any]:
    creation = {"resource_type": 3, "resource_name": name, "principal": f"User:{name}", "host": name or "*"}
    return {"creations": [creation | {"operation": 3, "permission_type": 3}]}


def _user(name: str) -> dict[str, Any]:
    upsertion = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p" * 32}
    return {"upsertions": [upsertion]}


ENTRIES: Final[dict[str, tuple[str, int, Callable[[str], dict[str, Any]]]]] = {
    "a topic": ("CreateTopics", 7, _topic),
    "a topic of Metadata": ("Metadata", 12, lambda name: {"topics": [{"name": name}]}),
    "a group": ("OffsetCommit", 8, _committed),
    "a transactional id": (
        "InitProducerId",
        4,
        lambda name: {
            "transactional_id": name,
            "transaction_timeout_ms": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
    "an access control list": ("CreateAcls", 3, _acl),
    "a user": ("AlterUserScramCredentials", 0, _user),
}


async def _sent(port: int, client_id: str, request: str, version: int, fields: dict[str, Any]) -> str:
    """Send a request over a connection of its own; returns CONTAINED, or what is wrong with the response."""
    classes = message_classes()
    connection = await connect(Address("127.0.0.1", port), client_id=client_id, request_seconds=SECONDS)
    try:
        message = built(classes[f"{request}Request"], fields)
        response = await connection.send(message, classes[f"{request}Response"], at_least=version, at_most=version)
        found = set(error_codes(response, version))
        return "UNKNOWN_SERVER_ERROR" if ErrorCode.UNKNOWN_SERVER_ERROR in found else CONTAINED
    except ConnectionLost:  # What is malformed ends its connection.
        return CONTAINED
    except ClientError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


async def _names(port: int) -> list[Cell]:
    return [
        Cell(f"{entry}: {name[:60]!r}", CONTAINED, await _sent(port, "tester", request, version, fields(name)))
        for entry, (request, version, fields) in ENTRIES.items()
        for name in hostile_names(NAMES)
    ]


def name_cells(directory: Path) -> list[Cell]:
    """Use each name as everything that has one; then look which files there are."""
    port = free_port()
    settings = ["authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS"]
    with OncelogProcess(directory, settings, port) as process:
        cells = asyncio.run(_names(port))
        data = process.data_directory
    strange = [str(path) for path in directory.rglob("*") if path.is_dir() and path.parent == data]
    strange = [path for path in strange if not _PARTITION.fullmatch(Path(path).name)]
    cells.append(Cell("directories of data", CONTAINED, "+".join(strange) or CONTAINED))
    with OncelogProcess(directory, settings, port):
        again = asyncio.run(_sent(port, "tester", "Metadata", 12, {"topics": None}))
    cells.append(Cell("a start with what is there", CONTAINED, again))
    return cells


def log_cells(directory: Path) -> list[Cell]:
    """Try to write lines into the log; one trial for each way that a client's text goes there."""
    port = free_port()
    starts = ("\n", "\r", "\r\n", "\u2028", "\x85", "\x1b[2K\r", "\x0b", "\x0c", "\u202e", "\x00\n")
    texts = [f"x{start}{_FORGED}{number}" for number, start in enumerate(starts)]
    trials: list[tuple[str, str, str, int, dict[str, Any]]] = []
    for text in texts:
        trials.append((text, text, "OffsetCommit", 8, _committed(text)))
        join = {"group_id": text, "session_timeout_ms": 6000, "protocol_type": text, "reason": text}
        trials.append((text, text, "JoinGroup", 8, join))
        trials.append((text, text, "AlterUserScramCredentials", 0, _user(text)))
    assert len(trials) == LOG_LINES
    with OncelogProcess(directory, ["log.level=DEBUG"], port) as process:
        found = [asyncio.run(_sent(port, *trial[1:])) for trial in trials]
        written = b"".join(path.read_bytes() for path in process.directory.glob("*.log"))
    forged = [line[:80] for line in written.split(b"\n") if not _LOG_START.match(line) or b"\x1b" in line]
    forged += [line[:80] for line in written.split(b"\n") if line.startswith(_FORGED.encode())]
    cells = [
        Cell(f"{request}: {text!r}", CONTAINED, outcome)
        for (text, _, request, *_), outcome in zip(trials, found, strict=True)
    ]
    cells.append(Cell("lines of the log", CONTAINED, repr(forged[:3]) if forged else CONTAINED))
    return cells


def _record(size: int) -> bytes:
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(size) + bytes(size) + b"\0"
    return encode_varint(len(body)) + body


_CODECS: Final = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)


def _lying(codec: Compression, data: bytes) -> bytes:
    """Return data whose size is not what it says: gzip has that at the end, the others at the beginning."""
    lie = b"\xff\xff\xff\x7f"
    return data[:-4] + lie if codec is Compression.GZIP else data[:6] + lie + data[10:]


def _bombs() -> dict[str, bytes]:
    rng = Random(1)
    made = {}
    for codec in _CODECS:
        large = bytes(compress(codec, _record(300 * MEBIBYTE)))
        small = bytes(compress(codec, _record(MEBIBYTE)))
        for title, payload, count in (
            ("300 MiB of zeros", large, 1),
            ("300 MiB of zeros as a million records", large, 1_000_000),
            ("half of 300 MiB of zeros", large[: len(large) // 2], 1),
            ("one inside the other", bytes(compress(codec, large)), 1),
            ("sixty-four behind each other", small * 64, 64),
            ("a size that is a lie", _lying(codec, small), 1),
        ):
            made[f"{codec.name}: {title}"] = with_payload(rng, payload, count, codec)
    return made


async def _produce(port: int, records: bytes) -> str:
    data = [{"name": "bombs", "partition_data": [{"index": 0, "records": records}]}]
    classes = message_classes()
    connection: Connection = await connect(Address("127.0.0.1", port), request_seconds=SECONDS)
    try:
        fields = {"acks": 1, "timeout_ms": 5000, "transactional_id": None, "topic_data": data}
        request: Message = built(classes["ProduceRequest"], fields)
        response = await connection.send(request, classes["ProduceResponse"], at_least=9, at_most=9)
        refused = set(error_codes(response, 9)) & {
            ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
        }  # fmt: skip
        return CONTAINED if refused else "+".join(sorted(each.name for each in error_codes(response, 9)))
    except ConnectionLost:
        return CONTAINED
    except ClientError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def _memory(process: OncelogProcess, figure: str) -> int:
    """Return a figure of /proc in bytes: what the process has in memory, or the most that it had."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(figure))


def bomb_cells(directory: Path) -> list[Cell]:
    """Produce all of them to a broker that looks into batches, four at once, and look how large it has become."""
    port = free_port()
    settings = ["oncelog.validate.records=full", "message.max.bytes=20000000"]
    with OncelogProcess(directory, settings, port) as process:
        asyncio.run(_sent(port, "tester", "CreateTopics", 7, _topic("bombs")))
        before = _memory(process, "VmRSS")

        async def all_of_them() -> list[Cell]:
            bombs = list(_bombs().items())
            cells = []
            for begin in range(0, len(bombs), 4):
                part = bombs[begin : begin + 4]
                found = await asyncio.gather(*(_produce(port, records) for _, records in part))
                cells += [Cell(name, CONTAINED, each) for (name, _), each in zip(part, found, strict=True)]
            return cells

        cells = asyncio.run(all_of_them())
        grown = _memory(process, "VmHWM") - before
    cells.append(Cell("memory", CONTAINED, CONTAINED if grown < MOST_MEMORY else f"{grown >> 20} MiB more"))
    return cells
