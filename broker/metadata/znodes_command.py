"""``oncelog znodes``: who may read and change the znodes of a cluster that is there already.

``zookeeper.set.acl`` protects what brokers create from then on. Exit codes: 0 done, 1 ZooKeeper does not let it be
done, 2 wrong usage or settings.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import IO, TYPE_CHECKING, Final, NoReturn, TypeAlias

import click

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.sources import load_config
from oncelog.broker.config.zookeeper_config import zookeeper_access
from oncelog.broker.metadata.store_choice import zookeeper_security
from oncelog.coordinator.metadata_store.store import SessionExpired, StoreUnavailable
from oncelog.coordinator.metadata_store.znode_access import ZnodeAccess

if TYPE_CHECKING:
    from oncelog.coordinator.metadata_store.zookeeper import ZooKeeperSession

Change: TypeAlias = Callable[["ZooKeeperSession"], Awaitable[Counter[ZnodeAccess]]]

_EXIT_FAILED: Final = 1
_EXIT_CONFIG: Final = 2
_NEEDS_USER: Final = (
    "znodes are protected for the user of ZooKeeper that the brokers are: set oncelog.zookeeper.sasl.jaas.config, or "
    "zookeeper.ssl.keystore.location with zookeeper.ssl.client.enable=true"
)


@click.group()
def command() -> None:
    """Protect the znodes of a cluster, or open them again."""


def _settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name ZooKeeper and the user."""
    options = (
        click.option(
            "--config", "properties", type=click.File(encoding="utf-8"), help="A broker's server.properties file."
        ),
        click.option("--zookeeper", help="ZooKeeper at HOST:PORT,…/CHROOT (zookeeper.connect)."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one setting; repeatable."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("protect", short_help="Let only the brokers change znodes.")
@_settings
def protect(properties: IO[str] | None, zookeeper: str | None, overrides: tuple[str, ...]) -> None:
    """Let only the brokers change the cluster's znodes, and read those with secrets.

    The brokers are the user of ZooKeeper that the settings name, which have to be those of the brokers. Start all
    brokers with zookeeper.set.acl=true first: what one without it creates is open. Brokers may go on meanwhile, and
    the command can be repeated.

    \b
    oncelog znodes protect --config server.properties
    """
    from oncelog.coordinator.metadata_store.znode_protection import protect_znodes

    counts = _run(_load(properties, zookeeper, overrides), protect_znodes)
    secret = counts[ZnodeAccess.SECRET]
    click.echo(f"{counts.total()} znodes are protected; {secret} of them can be read by the brokers only")


@command.command("unprotect", short_help="Let everybody change znodes.")
@_settings
def unprotect(properties: IO[str] | None, zookeeper: str | None, overrides: tuple[str, ...]) -> None:
    """Let everybody who reaches ZooKeeper read and change the cluster's znodes.

    Start all brokers with zookeeper.set.acl=false first.

    \b
    oncelog znodes unprotect --config server.properties
    """
    from oncelog.coordinator.metadata_store.znode_protection import open_znodes

    counts = _run(_load(properties, zookeeper, overrides), open_znodes)
    click.echo(f"{counts.total()} znodes are open to everybody")


def _load(properties: IO[str] | None, zookeeper: str | None, overrides: tuple[str, ...]) -> BrokerConfig:
    given = [*overrides, *([] if zookeeper is None else [f"zookeeper.connect={zookeeper}"])]
    try:
        text = properties.read() if properties is not None else ""
        return load_config(properties=text, environment=os.environ, overrides=given).config
    except ConfigError as error:
        _refuse(str(error), _EXIT_CONFIG)


def _run(config: BrokerConfig, change: Change) -> Counter[ZnodeAccess]:
    try:
        return asyncio.run(_change(config, change))
    except ConfigError as error:
        _refuse(str(error), _EXIT_CONFIG)
    except StoreUnavailable as error:
        _refuse(str(error), _EXIT_FAILED)


async def _change(config: BrokerConfig, change: Change) -> Counter[ZnodeAccess]:
    from oncelog.coordinator.metadata_store.zookeeper import connect_zookeeper

    if config.is_embedded:
        raise ConfigError("zookeeper.connect is missing: name ZooKeeper with --zookeeper, or a file with --config")
    if not zookeeper_access(config).has_user:
        raise ConfigError(_NEEDS_USER)
    session_ms = config.zookeeper_session_timeout_ms
    store = await connect_zookeeper(
        config.zookeeper_connect,
        session_timeout_ms=session_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or session_ms,
        security=zookeeper_security(config),
    )
    try:
        if store.session is None:
            raise SessionExpired("the session with ZooKeeper has ended already")
        return await change(store.session)
    finally:
        await store.close()


def _refuse(reason: str, exit_code: int) -> NoReturn:
    click.echo(f"Error: {reason}", err=True)
    sys.exit(exit_code)
