"""``ProcessMemory``: how much memory a process has, and had at most, seen from outside."""

from pathlib import Path


class ProcessMemory:
    """Of one process, in MiB, from now on."""

    def __init__(self, pid: int) -> None:
        self._directory = Path(f"/proc/{pid}")
        self._at_start = self._row("VmRSS")

    def growth_mib(self) -> int:
        """Return the most memory since ``forget_peak``, above what there was at the start."""
        return self._row("VmHWM") - self._at_start

    def forget_peak(self) -> None:
        (self._directory / "clear_refs").write_text("5")

    def _row(self, name: str) -> int:
        lines = (self._directory / "status").read_text().splitlines()
        (kibibytes,) = (int(line.split()[1]) for line in lines if line.startswith(name))
        return kibibytes // 1024
