"""Three brokers and a ZooKeeper, each broker with a file of settings that may change when it restarts."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.processes import free_port
from tests.rolling.rolling_cluster import RollingBroker, RollingCluster


class ConfiguredBroker(RollingBroker):
    """One broker; ``config`` are the settings that its next start reads, besides those of its place in the cluster."""

    def __init__(self, directory: Path, broker_id: int, zookeeper: str) -> None:
        super().__init__(directory, broker_id, zookeeper)
        self.config: dict[str, str] = {"listeners": f"PLAINTEXT://localhost:{self.port}"}
        self.secured_port = free_port()
        """For a second listener."""

    @property
    def _file(self) -> Path:
        return self.directory / "server.properties"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "oncelog", "serve", "--config", str(self._file)]

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = {
            "broker.id": str(self.broker_id),
            "log.dirs": str(self.data_directory),
            "zookeeper.connect": self.zookeeper,
            **self.config,
        }
        text = "".join(f"{key}={value}\n" for key, value in config.items())
        with open(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        super().launch()

    def log(self) -> str:
        """Return what it has logged so far."""
        return (self.directory / "stderr.log").read_text(errors="replace")


class ConfiguredCluster(RollingCluster[ConfiguredBroker]):
    """All brokers begin with a listener without TLS and login."""

    def __init__(self, directory: Path, config: Mapping[str, str]) -> None:
        super().__init__(directory, ConfiguredBroker)
        for broker in self.brokers:
            broker.config.update(config)

    @property
    def secured_bootstrap(self) -> str:
        """Where clients connect once there is a second listener."""
        return ",".join(f"localhost:{broker.secured_port}" for broker in self.brokers)

    async def change(self, broker: ConfiguredBroker, config: Mapping[str, str], *, kill: bool) -> None:
        """End a broker by SIGTERM or kill -9, and start it with these settings in place of its former ones."""
        await self.end(broker, kill=kill)
        broker.config = dict(config)
        await asyncio.to_thread(broker.start)
