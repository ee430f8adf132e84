"""A small file system of its own for each broker: one disk can be full, stand still or lose what was not synced.

Each is an ext4 image in a file, mounted over a loop device on the broker's data directory: that takes root. Nothing is
kept back for root in it, so that it is full for a broker that runs as root, too.
"""

import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_IMAGE_BYTES: Final = 192 << 20
_TRIAL_BYTES: Final = 8 << 20
_BALLAST: Final = "ballast"
_TOOLS: Final = ("mkfs.ext4", "mount", "umount", "fsfreeze")
_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN of linux/fs/ext4/ext4.h."""
_WITHOUT_FLUSH: Final = struct.pack("=I", 2)
"""EXT4_GOING_FLAGS_NOLOGFLUSH."""


def why_not() -> str | None:
    """Why volumes cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "to mount a file system takes root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    missing = [tool for tool in _TOOLS if not any((Path(place) / tool).exists() for place in os.get_exec_path())]
    return f"{', '.join(missing)} is missing" if missing else _why_not_mount()


def _why_not_mount() -> str | None:
    """Why a trial fails: root of a container may have the tools and not be allowed to mount."""
    with tempfile.TemporaryDirectory() as folder:
        image, place = Path(folder) / "trial.img", Path(folder) / "trial"
        place.mkdir()
        try:
            _mount(image, place, _TRIAL_BYTES)
        except subprocess.CalledProcessError as error:
            return f"a file system cannot be mounted ({error.stderr.strip()})"
        _run("umount", str(place))
        return None


class Volumes:
    """Those of one cluster. Made before it starts, closed after it has stopped."""

    def __init__(self) -> None:
        self._mounted: list[Path] = []
        self._images: dict[Path, Path] = {}
        self._frozen: set[Path] = set()

    def open(self, images: Path, places: Iterable[Path]) -> None:
        """Mount a new file system on each of the directories; ``images`` is where the files lie."""
        images.mkdir(parents=True)
        for place in places:
            image = images / f"{place.name}.img"
            place.mkdir(parents=True, exist_ok=True)
            _mount(image, place, _IMAGE_BYTES)
            self._mounted.append(place)
            self._images[place] = image

    def fill(self, place: Path) -> None:
        """Leave no byte free. What the broker writes meanwhile may take the last ones first."""
        with (place / _BALLAST).open("wb") as ballast:
            size, step = 0, _IMAGE_BYTES
            while step >= 1:
                try:
                    os.posix_fallocate(ballast.fileno(), size, step)
                    size += step
                except OSError:
                    step //= 2

    def make_room(self, place: Path) -> None:
        (place / _BALLAST).unlink(missing_ok=True)

    def freeze(self, place: Path) -> None:
        """Have every write wait, in the kernel, until ``thaw``."""
        _run("fsfreeze", "--freeze", str(place))
        self._frozen.add(place)

    def thaw(self, place: Path) -> None:
        if place in self._frozen:
            self._frozen.discard(place)
            _run("fsfreeze", "--unfreeze", str(place))

    def lose_power(self, place: Path) -> None:
        """Have the file system be as its device is: what was not synced is gone. No process may use it."""
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(directory)
        image = self._images[place]
        _run("umount", str(place))
        _run("mount", "-o", "loop", str(image), str(place))

    def close(self) -> None:
        for place in list(self._frozen):
            self.thaw(place)
        while self._mounted:
            _run("umount", "--lazy", str(self._mounted.pop()))


def _mount(image: Path, place: Path, size: int) -> None:
    """Make a file system of ``size`` bytes in a file, and mount it."""
    with image.open("wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    _run("mount", "-o", "loop", str(image), str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
