"""Listeners: the addresses where a broker listens, and those that it advertises to its clients.

``listeners`` and ``advertised.listeners`` are lists of ``NAME://host:port``. A client receives the advertised address
of the listener that it connected to, so each name in one list is a name in the other. What would leave clients with an
address that they cannot use is refused here, with the setting to change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listener_limits import parse_listener_limits
from oncelog.broker.config.prefixed_settings import refuse_useless
from oncelog.broker.config.sasl_config import SaslListener, parse_inter_broker_login, parse_sasl_listener
from oncelog.broker.config.settings import ConfigError
from oncelog.broker.config.tls_config import TlsListener, parse_tls_listener
from oncelog.protocol.sasl.login import Login

_ENTRY: Final = re.compile(r"(?P<name>[\w.-]+)://(?P<host>\[[0-9a-fA-F:.%]*\]|[^:/\[\]]*):(?P<port>-?\d+)")
_HTTP_LISTENER: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]*\]|[^:/\[\]]*):(?P<port>\d{1,5})")
_META_ADDRESSES: Final = frozenset({"0.0.0.0", "::"})
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|::1", re.IGNORECASE)
PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
WITH_SASL: Final = (SASL_PLAINTEXT, SASL_SSL)
WITH_TLS: Final = (SSL, SASL_SSL)
SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's numbers, as brokers send them to each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address to listen at. Port 0 lets the kernel choose; an empty host is every interface."""

    name: str
    host: str
    port: int
    security_protocol: str = PLAINTEXT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """A broker's listeners, what is advertised of each by name, and the one that other brokers use."""

    bound: tuple[Listener, ...]
    advertised: Mapping[str, Listener]
    inter_broker: str

    def with_ports(self, ports: Mapping[str, int]) -> "Listeners":
        """Return the listeners after binding: ports that the kernel chose are known, and advertised by default."""
        bound = tuple(replace(listener, port=ports[listener.name]) for listener in self.bound)
        advertised = {
            name: replace(listener, port=listener.port or ports[name]) for name, listener in self.advertised.items()
        }
        return Listeners(bound=bound, advertised=advertised, inter_broker=self.inter_broker)


def advertised_as_loopback(listeners: Listeners) -> list[Listener]:
    """Return the listeners that advertise each client's own machine, although other machines can connect to them."""
    bound = {listener.name: listener for listener in listeners.bound}
    return [
        listener
        for name, listener in listeners.advertised.items()
        if _LOOPBACK.fullmatch(listener.host) and not _LOOPBACK.fullmatch(bound[name].host)
    ]


def parse_listeners(config: BrokerConfig, *, own_host: str = "localhost") -> Listeners:
    """Read the settings. ``own_host`` is advertised for a listener of every interface, if nothing else is."""
    protocols = _protocols(config)
    bound = tuple(
        listener
        for listener in _parse("listeners", config.listeners, protocols)
        if listener.name not in config.controller_listener_names
    )
    if not bound:
        raise ConfigError("listeners is empty: expected NAME://host:port")
    _refuse_same_ports(bound)
    advertised = _advertised(config, bound, protocols, own_host)
    return Listeners(bound=bound, advertised=advertised, inter_broker=_inter_broker(config, bound))


def parse_http_listener(text: str) -> tuple[str, int]:
    """Return host and port of ``oncelog.http.listener``; an empty host is every interface. Raises ``ConfigError``."""
    match = _HTTP_LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise ConfigError(f"oncelog.http.listener={text!r} is not valid: expected host:port")
    return match["host"].strip("[]"), int(match["port"])


def _parse(key: str, text: str, protocols: Mapping[str, str]) -> list[Listener]:
    found: list[Listener] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{key}={text!r} is not valid: {entry!r} is not of the form NAME://host:port")
        name, port = match["name"].upper(), int(match["port"])
        if not 0 <= port <= 65_535:
            raise ConfigError(f"{key}={text!r} is not valid: {port} is not a port")
        if name not in protocols:
            raise ConfigError(f"{key} names {name}: add {name}:PLAINTEXT to listener.security.protocol.map")
        if any(name == other.name for other in found):
            raise ConfigError(f"{key}={text!r} names {name} twice: each listener needs a name of its own")
        host = match["host"].strip("[]")
        found.append(Listener(name=name, host=host, port=port, security_protocol=protocols[name]))
    return found


def _protocols(config: BrokerConfig) -> dict[str, str]:
    protocols = {}
    for entry in filter(None, (part.strip() for part in config.listener_security_protocol_map.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has {entry!r}: expected NAME:{'|'.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _refuse_same_ports(bound: tuple[Listener, ...]) -> None:
    ports = [(listener.host, listener.port) for listener in bound if listener.port]
    if len(set(ports)) < len(ports):
        raise ConfigError("listeners uses one port twice: each listener needs a port of its own")


def _advertised(
    config: BrokerConfig, bound: tuple[Listener, ...], protocols: Mapping[str, str], own_host: str
) -> dict[str, Listener]:
    if config.advertised_listeners is None:
        return {
            listener.name: replace(listener, host=own_host)
            if not listener.host or listener.host in _META_ADDRESSES
            else listener
            for listener in bound
        }
    advertised = {
        listener.name: listener
        for listener in _parse("advertised.listeners", config.advertised_listeners, protocols)
        if listener.name not in config.controller_listener_names
    }
    for listener in advertised.values():
        if not listener.host or listener.host in _META_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners has {listener}, which no client can connect to: "
                "expected the name or address by which clients reach this broker"
            )
    missing = {listener.name for listener in bound} ^ advertised.keys()
    if missing:
        raise ConfigError(
            f"listeners and advertised.listeners must have the same names: see {', '.join(sorted(missing))}"
        )
    return advertised


def _inter_broker(config: BrokerConfig, bound: tuple[Listener, ...]) -> str:
    names = [listener.name for listener in bound]
    wanted = (config.inter_broker_listener_name or "").upper()
    if wanted:
        if wanted not in names:
            raise ConfigError(f"inter.broker.listener.name={wanted} is not one of listeners")
        return wanted
    for listener in bound:
        if listener.security_protocol == config.security_inter_broker_protocol:
            return listener.name
    return names[0]


def parse_per_ip_limits(text: str) -> dict[str, int]:
    """Return the limits of ``address:count,…`` by address. Raises ``ConfigError``.

    An IPv6 address has colons of its own: the count is what follows the last one.
    """
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = entry.rpartition(":")
        if not address or not count.strip().isdecimal():
            raise ConfigError(f"max.connections.per.ip.overrides has {entry!r}: expected address:count")
        limits[address.strip("[]")] = int(count)
    return limits


def checked_listeners(config: BrokerConfig) -> Listeners:
    """Return the listeners, after every other network setting that is parsed later: each raises ``ConfigError``.

    A broker that is refused for its settings must not have written to its data directory.
    """
    parse_per_ip_limits(config.max_connections_per_ip_overrides)
    if config.oncelog_http_listener is not None:
        parse_http_listener(config.oncelog_http_listener)
    listeners = parse_listeners(config)
    names = [listener.name for listener in listeners.bound]
    refuse_useless(
        config, names, [listener.name for listener in listeners.bound if listener.security_protocol in WITH_TLS]
    )
    parse_listener_limits(config, names)
    sasl_listeners(config, listeners)
    tls_listeners(config, listeners)
    inter_broker_login(config, listeners)
    return listeners


def sasl_listeners(config: BrokerConfig, listeners: Listeners) -> dict[str, SaslListener]:
    """Return what each listener with SASL serves, by its name. Raises ``ConfigError``."""
    return {
        listener.name: parse_sasl_listener(config, listener.name)
        for listener in listeners.bound
        if listener.security_protocol in WITH_SASL
    }


def tls_listeners(config: BrokerConfig, listeners: Listeners) -> dict[str, TlsListener]:
    """Return what each listener with TLS does, by its name. Raises ``ConfigError``."""
    return {
        listener.name: parse_tls_listener(config, listener.name, has_sasl=listener.security_protocol in WITH_SASL)
        for listener in listeners.bound
        if listener.security_protocol in WITH_TLS
    }


def inter_broker_login(config: BrokerConfig, listeners: Listeners) -> Login | None:
    """Return with what this broker authenticates to others; None if it need not, or is alone."""
    protocols = {listener.name: listener.security_protocol for listener in listeners.bound}
    if config.is_embedded or protocols[listeners.inter_broker] not in WITH_SASL:
        return None
    return parse_inter_broker_login(config, listeners.inter_broker)
