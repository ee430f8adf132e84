"""A server of ZooKeeper as far as sessions, logins and reading a znode go, whose responses a test chooses.

The login is DIGEST-MD5 (RFC 2831) written from the specification, with which that of pure-sasl is compared.
"""

import asyncio
import hashlib
import re
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, cast

USER: Final = "kafka"
PASSWORD: Final = 'pass,"w\\ord='
AUTH_FAILED: Final = -115
_NONCE: Final = b"a nonce"
_REALM: Final = b"zk-sasl-md5"
_STAT: Final = struct.pack(">qqqqiiiqiiq", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
_PING: Final = -2
_EXISTS: Final = 3
_GET: Final = 4
_SASL: Final = 102
_MULTI: Final = 14
_CREATE: Final = 15
_CLOSE: Final = -11


class Login:
    """The server's side of one login. A test changes what it does by another subclass."""

    def greet(self) -> bytes | int | None:
        """The challenge; a number is an error, None ends the connection."""
        return b'realm="%s",nonce="%s",charset=utf-8,algorithm=md5-sess,qop="auth"' % (_REALM, _NONCE)

    def judge(self, response: bytes) -> bytes | int | None:
        """The last message, for the client's response."""
        fields = dict(re.findall(rb'(\w[\w-]*)=(?:"((?:[^"\\]|\\.)*)"|[^,]*)', response))
        given = re.search(rb"response=(\w+)", response)
        name = re.sub(rb"\\(.)", rb"\1", fields[b"username"])
        assert given is not None
        if name.decode() != USER or given[1] != self._digest(b"AUTHENTICATE", fields):
            return AUTH_FAILED
        return b"rspauth=" + self._digest(b"", fields)

    def _digest(self, method: bytes, fields: dict[bytes, bytes]) -> bytes:
        secret = hashlib.md5(b":".join([USER.encode(), _REALM, PASSWORD.encode()])).digest()
        first = b":".join([secret, _NONCE, fields[b"cnonce"]])
        second = b":".join([method, fields[b"digest-uri"]])
        middle = b":".join([_NONCE, b"00000001", fields[b"cnonce"], b"auth"])
        return _hex(b":".join([_hex(first), middle, _hex(second)]))


def _hex(data: bytes) -> bytes:
    return hashlib.md5(data).hexdigest().encode()


class ScriptedZooKeeper:
    """The server; ``logins`` makes its side of each login, ``look`` and ``read`` respond to requests for a znode."""

    def __init__(self) -> None:
        self.logins: Callable[[], Login] = Login
        self.look: Callable[[Connection, int], None] = lambda connection, xid: connection.reply(xid, 0, _STAT)
        self.read: Callable[[Connection, int], None] = lambda connection, xid: connection.send(empty_znode(xid))
        self.creation: Callable[[], bytes] = created_znode
        self.created: list[bytes] = []
        """The requests that create znodes, in bytes: with their access control lists."""
        self.timeout_ms = 60_000
        self.connections: list[Connection] = []
        self.login_times: list[float] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["ScriptedZooKeeper"]:
        server = await asyncio.get_running_loop().create_server(lambda: Connection(self), "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """End all connections."""
        for connection in self.connections:
            connection.cut()
        self.connections.clear()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: ScriptedZooKeeper) -> None:
        self._server = server
        self._received = b""
        self._has_session = False
        self._login: Login | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.append(self)

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        for frame in self._frames():
            if self._has_session:
                self._respond(*struct.unpack_from(">ii", frame), frame[8:])
            else:
                self._has_session = True
                self.send(struct.pack(">iiqi16sb", 0, self._server.timeout_ms, 7, 16, b"p" * 16, 0))

    def _frames(self) -> Iterator[bytes]:
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + length:
                return
            frame, self._received = self._received[4 : 4 + length], self._received[4 + length :]
            yield frame

    def _respond(self, xid: int, kind: int, content: bytes) -> None:
        if kind == _EXISTS:
            self._server.look(self, xid)
        elif kind == _GET:
            self._server.read(self, xid)
        elif kind == _SASL:
            self._serve_login(xid, content[4:])
        elif kind == _MULTI:
            self._server.created.append(content)
            self.reply(xid, 0, self._server.creation())
        elif xid == _PING:
            self.reply(xid)
        elif kind == _CLOSE:
            self.reply(xid)
            self.cut()

    def _serve_login(self, xid: int, message: bytes) -> None:
        if self._login is None:
            self._login = self._server.logins()
            self._server.login_times.append(asyncio.get_running_loop().time())
            response = self._login.greet()
        else:
            response = self._login.judge(message)
        if response is None:
            self.cut()
        elif isinstance(response, int):
            self.reply(xid, response)
        else:
            self.reply(xid, 0, struct.pack(">i", len(response)) + response)

    def reply(self, xid: int, error: int = 0, content: bytes = b"") -> None:
        self.send(struct.pack(">iqi", xid, 0, error) + content)

    def send(self, *frames: bytes) -> None:
        """Send frames at once: one record of TLS, if there is TLS."""
        assert self._transport is not None
        self._transport.write(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))


def created_znode() -> bytes:
    """The response to a multi that creates one znode."""
    return struct.pack(">ibii1s", _CREATE, 0, 0, 1, b"/") + _STAT + struct.pack(">ibi", -1, 1, -1)


def failed_creation(error: int) -> bytes:
    """The response to a multi that could not create one znode."""
    return struct.pack(">ibiiibi", -1, 0, error, error, -1, 1, -1)


def empty_znode(xid: int) -> bytes:
    """The response to a request that reads a znode without data."""
    return struct.pack(">iqii", xid, 0, 0, 0) + _STAT
