"""``python -m tests.hostile.compare COMMIT``: play the same frames to the broker of a former commit and to this one.

The frames are those of ``tests.scenarios.malformed_frames``: every API and version, valid and not. Each goes over a
connection of its own, to one broker after the other on the same port and directory, and the two responses are compared
field by field. What may differ between two runs of one broker is masked: ids, timestamps, free space. The exit code is
1 if a response differs, or if a broker ended or logged a traceback. Frames that wait, or end inside, are left out.
"""

import argparse
import io
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from oncelog.protocol.framing import parse_response
from oncelog.protocol.primitives import DecodeError
from oncelog.protocol.schema import Message
from tests.hostile.frames import FRAME_SETTINGS, prepare_for_frames
from tests.processes import REPOSITORY, OncelogProcess, free_port
from tests.scenarios.malformed_frames import Fate, Frame, FrameFactory, Kind, response_class

FRAMES: Final = 5_000
_SHOWN: Final = 20
"""Differences that are printed."""
_TOPIC_ID: Final = b"TOPIC-ID-OF-ONE!"
"""Stands for the id of a topic, which each broker chooses."""
_PATIENCE_SECONDS: Final = 20.0
_SILENCE_SECONDS: Final = 0.2
_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[A-Za-z0-9_-]{22}")
_HAS_RANDOM_ID: Final = ("member_id", "leader", "cluster_id", "message")
_VARIES: Final = ("timestamp", "session_id", "throttle_time_ms", "total_bytes", "usable_bytes", "_time_ms")


class FormerProcess(OncelogProcess):
    """A broker whose code is in a tree of its own."""

    def __init__(self, directory: Path, settings: Sequence[str], port: int, tree: Path) -> None:
        super().__init__(directory, settings, port)
        self._tree = tree

    def command(self) -> list[str]:
        python, *words = super().command()
        return [python, "-P", *words]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(self._tree)}


def play(broker: OncelogProcess, frames: Sequence[Frame]) -> list[Any]:
    """Return the masked response to each frame; "closed" or "silent" where there is none."""
    with broker:
        (topic_id,) = prepare_for_frames(broker.port)
        responses = [_exchange(broker.port, frame, topic_id) for frame in frames]
        assert broker.process is not None
        assert broker.process.poll() is None, "the broker ended"
    assert "Traceback" not in (broker.directory / "stderr.log").read_text(), "the broker logged a traceback"
    return responses


def _exchange(port: int, frame: Frame, topic_id: bytes) -> Any:
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(_SILENCE_SECONDS if frame.fate is Fate.SILENT else _PATIENCE_SECONDS)
        try:
            connection.sendall(frame.data.replace(_TOPIC_ID, topic_id))
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                part = connection.recv(1 << 16)
                if not part:
                    return "closed"
                received += part
        except TimeoutError:
            return "silent"
        except OSError:
            return "closed"
    if frame.request is None:
        return received[4:].hex()
    try:
        _, response = parse_response(response_class(frame.request), frame.version, memoryview(received)[4:])
    except DecodeError:
        return received[4:].hex()
    return masked(response, "")


def masked(value: Any, name: str) -> Any:
    """Return a field without what differs between two runs of one broker."""
    if isinstance(value, Message):
        return {field.name: masked(getattr(value, field.name), field.name) for field in type(value).fields}
    if isinstance(value, list):
        return [masked(each, name) for each in value]
    if any(varying in name for varying in _VARIES):
        return "varies"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes" if "id" in name or name == "records" else bytes(value).hex()
    if isinstance(value, str) and any(part in name for part in _HAS_RANDOM_ID):
        return _RANDOM_ID.sub("id", value)
    return value


def differences(former: Any, present: Any, path: str = "") -> Iterator[str]:
    """Yield the places at which two masked responses differ."""
    if isinstance(former, dict) and isinstance(present, dict):
        for name in former:
            yield from differences(former[name], present[name], f"{path}.{name}")
    elif isinstance(former, list) and isinstance(present, list) and len(former) == len(present):
        for index, pair in enumerate(zip(former, present, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif former != present:
        yield f"{path}: {former!r}, now {present!r}"


def main() -> int:
    """Play, compare and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.compare", description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="the commit whose broker is compared with this one")
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"number of frames (default {FRAMES})")
    parser.add_argument("--seed", type=int, default=1, help="the same frames for the same seed (default 1)")
    chosen = parser.parse_args()
    made = FrameFactory(chosen.seed, [_TOPIC_ID]).frames(chosen.frames)
    frames = [frame for frame in made if frame.fate is not Fate.WAITS and frame.kind is not Kind.CUT_OFF]
    with tempfile.TemporaryDirectory() as folder:
        tree, directory, port = Path(folder, "tree"), Path(folder, "broker"), free_port()
        archive = subprocess.run(
            ["git", "archive", chosen.commit], cwd=REPOSITORY, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
        former = play(FormerProcess(directory, FRAME_SETTINGS, port, tree), frames)
        shutil.rmtree(directory)
        present = play(OncelogProcess(directory, FRAME_SETTINGS, port), frames)
    found = [
        f"frame {number}, {frame.request and frame.request.__name__} v{frame.version}{difference}"
        for number, (frame, *pair) in enumerate(zip(frames, former, present, strict=True))
        for difference in differences(*pair)
    ]
    print(*found[:_SHOWN], sep="\n")
    kinds = Counter(each if isinstance(each, str) and len(each) < 7 else "response" for each in former)
    print(f"{len(frames)} frames, {dict(kinds)}: {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
