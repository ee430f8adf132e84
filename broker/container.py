"""``python -m oncelog.broker.container``: the entry point of the image.

In a container there is no command line to speak of: settings are ``KAFKA_*`` variables or a mounted
``server.properties``, as with Kafka's own images, and the rest must do what one expects. What is decided here is only
what the settings leave open:

* the data directory is the image's volume, and an error names the user that must own it if it cannot be written;
* without ``listeners``, those of ``advertised.listeners`` are opened on every interface, and if neither is set, port
  9092 is, which ``docker run -p 9092:9092`` makes ``localhost:9092`` on the host;
* a listener on every interface that is not advertised is advertised by the container's host name, by which other
  containers know it;
* ``CLUSTER_ID`` is ``cluster.id``.

Words after the image's name are a command of ``oncelog`` (``serve`` if there are none or only options), or else a
program to run. ``health`` queries the broker of this container, wherever it listens.
"""

import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from oncelog.broker.config.sources import settings_in_environment
from oncelog.protocol.properties import parse_properties

DATA_VARIABLE: Final = "ONCELOG_DATA_DIR"
CONFIG_VARIABLE: Final = "ONCELOG_CONFIG_FILE"
_BOOTSTRAP_VARIABLES: Final = frozenset({"ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"})
_DEFAULT_PORT: Final = 9092
_EVERYWHERE: Final = re.compile(r"://(0\.0\.0\.0|\[::\]|):")
_HOST: Final = re.compile(r"://(\[[^\]]*\]|[^:,]*):")
_LISTENER: Final = re.compile(r"(?P<name>[\w.-]+)://(?P<host>\[[^\]]*\]|[^:,]*):(?P<port>\d+)")


def image_settings(given: Mapping[str, str], environment: Mapping[str, str], host_name: str) -> dict[str, str]:
    """Return the settings that follow from what was ``given``, where it leaves something open."""
    settings = {}
    if not given.keys() & {"log.dir", "log.dirs"} and environment.get(DATA_VARIABLE):
        settings["log.dirs"] = environment[DATA_VARIABLE]
    if "cluster.id" not in given and environment.get("CLUSTER_ID"):
        settings["cluster.id"] = environment["CLUSTER_ID"]
    return settings | _listener_settings(given.get("listeners"), given.get("advertised.listeners"), host_name)


def _listener_settings(listeners: str | None, advertised: str | None, host_name: str) -> dict[str, str]:
    if listeners is None and advertised is None:
        return {
            "listeners": f"PLAINTEXT://:{_DEFAULT_PORT}",
            "advertised.listeners": f"PLAINTEXT://localhost:{_DEFAULT_PORT}",
        }
    if listeners is None:
        assert advertised is not None
        return {"listeners": _HOST.sub("://:", advertised)}
    if advertised is None and _EVERYWHERE.search(listeners):
        return {"advertised.listeners": _EVERYWHERE.sub(f"://{host_name}:", listeners)}
    return {}


def own_address(settings: Mapping[str, str]) -> str:
    """Return ``host:port`` of the broker's first listener, as reached from inside its container."""
    unopened = settings.get("controller.listener.names", "").upper().split(",")
    for match in _LISTENER.finditer(settings.get("listeners", "")):
        if match["name"].upper() not in unopened:
            everywhere = match["host"] in ("", "0.0.0.0", "[::]")
            return f"{'localhost' if everywhere else match['host']}:{match['port']}"
    return f"localhost:{_DEFAULT_PORT}"


def command_line(words: Sequence[str], settings: Mapping[str, str], config: str | None) -> list[str]:
    """Return the words of ``oncelog serve``; the user's own come last, and win."""
    options = [] if config is None else ["--config", config]
    options += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return ["serve", *options, *words]


def why_not_writable(directory: str) -> str | None:
    """Return what is wrong with a data directory; None if files can be made there."""
    probe = Path(directory) / f".writable-{os.getpid()}"
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        return (
            f"the data directory {directory} cannot be written by user {os.getuid()}: {error.strerror}. "
            f"A directory of the host that is mounted there must belong to that user: chown -R {os.getuid()} DIRECTORY"
        )
    return None


def main(words: Sequence[str], environment: Mapping[str, str]) -> None:
    from oncelog.broker.__main__ import cli
    from oncelog.broker.__main__ import main as oncelog

    config = environment.get(CONFIG_VARIABLE)
    if config is None or not Path(config).is_file():
        config = None
    properties = "" if config is None else Path(config).read_text(encoding="utf-8")
    given = parse_properties(properties) | settings_in_environment(environment)
    settings = image_settings(given, environment, socket.gethostname())
    effective = given | settings
    if not words or words[0] == "serve" or words[0].startswith("-"):
        _be_stoppable()
        reason = why_not_writable(effective.get("log.dirs") or effective.get("log.dir") or ".")
        if reason is not None:
            sys.exit(f"oncelog: {reason}")
        oncelog(command_line(words[1:] if words and words[0] == "serve" else words, settings, config))
    elif words[0] == "health" and not environment.keys() & _BOOTSTRAP_VARIABLES:
        oncelog(["health", "--bootstrap", own_address(effective), *words[1:]])
    elif words[0] in cli.list_commands(click.Context(cli)):
        oncelog(words)
    else:
        os.execvp(words[0], list(words))


def _be_stoppable() -> None:
    """Handle signals until the broker does: the first process of a container gets none that it does not handle."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: os._exit(128 + received))


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
