"""Delegation tokens: logins by those that are good, expired, removed or foreign, and what a client by token may do."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from oncelog.clients.connection import Address, Connection, connect
from oncelog.clients.sasl import SaslClient
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
)
from oncelog.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from oncelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from oncelog.protocol.sasl.login import SaslLogin
from oncelog.protocol.sasl.plain import encode_plain
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism
from tests.command import Oncelog
from tests.processes import OncelogProcess, free_port
from tests.security.cell import Cell
from tests.security.login_cells import LOGGED_IN, PASSWORD, REFUSED, Say, Words, authenticated, login
from tests.unit.broker.security.scram_client import NONCE, ScramClient

KEY: Final = "sesame-open"
OTHER_KEY: Final = "sesame-close"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.name
_256, _512 = SCRAM_SHA_256.name, SCRAM_SHA_512.name
_SHORT_MS: Final = 400
"""Lifetime of a token that expires while the others are tried."""
_ATTEMPTS: Final = 200
_PAUSE_SECONDS: Final = 0.02

Token = CreateDelegationTokenResponse
MakesToken = Callable[["Users"], Awaitable[Token]]


def secret_of(token_id: str, key: str = KEY, digest: Any = hashlib.sha512) -> bytes:
    """Return the hmac that a token has under a key."""
    return hmac.new(key.encode(), token_id.encode(), digest).digest()


def _password(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


class Users:
    """Connections of users with a password, over which tokens are requested."""

    def __init__(self, connections: dict[str, Connection]) -> None:
        self._connections = connections

    async def create(self, owner: str = "alice", **fields: Any) -> Token:
        request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
        token = await self._connections[owner].send(request, CreateDelegationTokenResponse)
        assert token.error_code == ErrorCode.NONE, token
        return token

    async def remove(self, token: Token, user: str = "alice") -> None:
        await self._expire(token, -1, user)

    async def _expire(self, token: Token, period_ms: int, user: str) -> None:
        request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
        response = await self._connections[user].send(request, ExpireDelegationTokenResponse)
        assert response.error_code == ErrorCode.NONE, response

    async def renewed(self) -> Token:
        """Return a token that one of its renewers has renewed."""
        token = await self.create(renewers=[CreatableRenewers(principal_type="User", principal_name="bob")])
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000)
        response = await self._connections["bob"].send(request, RenewDelegationTokenResponse)
        assert response.error_code == ErrorCode.NONE, response
        return token

    async def removed(self) -> Token:
        token = await self.create()
        await self.remove(token)
        return token

    async def expired(self) -> Token:
        """Return a token whose maximum lifetime has passed, as a renewal says."""
        token = await self.create(max_lifetime_ms=_SHORT_MS)
        return await self._until_expired(token)

    async def let_expire(self) -> Token:
        """Return a token that its owner has let expire in a moment."""
        token = await self.create()
        await self._expire(token, _SHORT_MS, "alice")
        return await self._until_expired(token)

    async def _until_expired(self, token: Token) -> Token:
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1)
        for _ in range(_ATTEMPTS):
            response = await self._connections["alice"].send(request, RenewDelegationTokenResponse)
            if response.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED:
                return token
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"the token does not expire: {response}")

    async def of_removed_owner(self) -> Token:
        """Return a token whose owner cannot log in by a password any more."""
        token = await self.create("carol")
        deletion = ScramCredentialDeletion(name="carol", mechanism=SCRAM_SHA_256.type)
        request = AlterUserScramCredentialsRequest(deletions=[deletion])
        response = await self._connections["admin"].send(request, AlterUserScramCredentialsResponse)
        assert response.results[0].error_code == ErrorCode.NONE, response
        return token


async def scram(mechanism: ScramMechanism, name: str, password: str, extensions: str, say: Say) -> None:
    """Log in with extensions of one's own behind the nonce."""
    client = ScramClient(mechanism, name, password)
    client.extend(extensions)
    await say(client.final(await say(client.first)))


async def _as_another(token: Token, header: bytes, say: Say) -> None:
    await say(header + f"n={token.token_id},r={NONCE},tokenauth=true".encode())


def by_token(token: Token, mechanism: ScramMechanism = SCRAM_SHA_256, extensions: str = ",tokenauth=true") -> Words:
    return partial(scram, mechanism, token.token_id, _password(token.hmac), extensions)


def _with(token: Token, *, name: str | None = None, password: str | None = None) -> Words:
    """Return a login by token with another id or another secret."""
    chosen = _password(token.hmac) if password is None else password
    return partial(scram, SCRAM_SHA_256, token.token_id if name is None else name, chosen, ",tokenauth=true")


def _logins(token: Token, other: Token) -> dict[str, tuple[str, str, Words]]:
    """Return logins by a good token, or with what looks like one."""
    own, name = _password(token.hmac), token.token_id
    plain = partial(_plain, encode_plain(name, own))
    return {
        "by SCRAM-SHA-256": (_256, LOGGED_IN, by_token(token)),
        "by SCRAM-SHA-512": (_512, LOGGED_IN, by_token(token, SCRAM_SHA_512)),
        "tokenauth=TRUE": (_256, LOGGED_IN, by_token(token, extensions=",tokenauth=TRUE")),
        "another extension beside it": (_256, LOGGED_IN, by_token(token, extensions=",a=b,tokenauth=true")),
        "without tokenauth": (_256, REFUSED, by_token(token, extensions="")),
        "tokenauth=false": (_256, REFUSED, by_token(token, extensions=",tokenauth=false")),
        "tokenauth=1": (_256, REFUSED, by_token(token, extensions=",tokenauth=1")),
        "tokenauth=": (_256, REFUSED, by_token(token, extensions=",tokenauth=")),
        "TOKENAUTH=true": (_256, REFUSED, by_token(token, extensions=",TOKENAUTH=true")),
        "tokenauth twice": (_256, REFUSED, by_token(token, extensions=",tokenauth=false,tokenauth=true")),
        "by the other mechanism's hash": (_512, REFUSED, by_token(token)),
        "by PLAIN": ("PLAIN", REFUSED, plain),
        "tokenauth of a user without a token": (_256, REFUSED, _with(token, name="alice", password=PASSWORD)),
        "the owner's name and the token's secret": (_256, REFUSED, _with(token, name="alice")),
        "the token and the owner's password": (_256, REFUSED, _with(token, password=PASSWORD)),
        "the secret of another token": (_256, REFUSED, _with(token, password=_password(other.hmac))),
        "the id of another token": (_256, REFUSED, _with(token, name=other.token_id)),
        "an unknown id": (_256, REFUSED, _with(token, name="A" * 22)),
        "an unknown id and its hmac": (
            _256,
            REFUSED,
            _with(token, name="A" * 22, password=_password(secret_of("A" * 22))),
        ),
        "the id in other case": (_256, REFUSED, _with(token, name=name.swapcase())),
        "a part of the id": (_256, REFUSED, _with(token, name=name[:-1])),
        "an id that is a path": (_256, REFUSED, _with(token, name=f"../tokens/{name}")),
        "the secret in hexadecimal": (_256, REFUSED, _with(token, password=token.hmac.hex())),
        "a part of the secret": (_256, REFUSED, _with(token, password=_password(token.hmac[:32]))),
        "a secret of no bytes": (_256, REFUSED, _with(token, password="=")),
        "a secret under another key": (_256, REFUSED, _with(token, password=_password(secret_of(name, OTHER_KEY)))),
        "a secret under an empty key": (_256, REFUSED, _with(token, password=_password(secret_of(name, "")))),
        "a secret by SHA-256": (
            _256,
            REFUSED,
            _with(token, password=_password(secret_of(name, KEY, hashlib.sha256))),
        ),
        "as the owner": (_256, REFUSED, partial(_as_another, token, b"n,a=alice,")),
        "as another user": (_256, REFUSED, partial(_as_another, token, b"n,a=admin,")),
    }


async def _plain(token: bytes, say: Say) -> None:
    await say(token)


_MADE: Final[dict[str, tuple[str, MakesToken]]] = {
    "renewed": (LOGGED_IN, Users.renewed),
    "of an owner whose password was removed": (LOGGED_IN, Users.of_removed_owner),
    "expired": (REFUSED, Users.expired),
    "that its owner let expire": (REFUSED, Users.let_expire),
    "removed": (REFUSED, Users.removed),
}
"""As in Kafka, a token does not end with the password of its owner."""


async def _requests_by_token(port: int, token: Token, user: str) -> list[Cell]:
    """Try the four requests about tokens over a connection that a token has authenticated."""
    requests = {
        "create": (CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse),
        "create for another user": (
            CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1, renewers=[]
            ),
            CreateDelegationTokenResponse,
        ),
        "renew": (RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), RenewDelegationTokenResponse),
        "expire": (
            ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1),
            ExpireDelegationTokenResponse,
        ),
        "describe": (DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse),
    }
    cells = []
    async with authenticated(port, _256, by_token(token)) as connection:
        for name, (request, response_type) in requests.items():
            response: Any = await connection.send(request, response_type)
            found = ErrorCode(response.error_code).name
            cells.append(Cell(f"token of {user}, logged in by it: {name}", NOT_ALLOWED, found))
    return cells


async def _before_restart(port: int) -> tuple[list[Cell], Token]:
    connections = {
        user: await connect(Address("localhost", port), sasl=SaslClient(_login_of(user)))
        for user in ("alice", "bob", "carol", "admin")
    }
    users = Users(connections)
    token, other = await users.create(), await users.create("bob")
    logins = _logins(token, other)
    for name, (expected, make) in _MADE.items():
        logins[f"a token {name}"] = (_256, expected, by_token(await make(users)))
    cells = [
        Cell(f"token, {name}", expected, await login(port, mechanism, words))
        for name, (mechanism, expected, words) in logins.items()
    ]
    cells += await _requests_by_token(port, token, "alice")
    cells += await _requests_by_token(port, await users.create("admin"), "a super user")
    for connection in connections.values():
        connection.close()
    return cells, token


def _login_of(user: str) -> SaslLogin:
    return SaslLogin(mechanism=_256 if user == "carol" else "PLAIN", username=user, password=PASSWORD)


async def _after_restart(port: int, token: Token, *, is_same: bool) -> list[Cell]:
    """Log in by a token that was made before a restart, which may have changed the key."""
    key, of_old_key = ("the same key", LOGGED_IN) if is_same else ("another key", REFUSED)
    of_new_key = REFUSED if is_same else LOGGED_IN
    new = _with(token, password=_password(secret_of(token.token_id, OTHER_KEY)))
    return [
        Cell(f"token after a restart with {key}", of_old_key, await login(port, _256, by_token(token))),
        Cell(f"token after a restart with {key}, the other's secret", of_new_key, await login(port, _256, new)),
    ]


async def _without_key(port: int, token: Token) -> list[Cell]:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    connection = await connect(Address("localhost", port), sasl=SaslClient(_login_of("alice")))
    response = await connection.send(request, CreateDelegationTokenResponse)
    connection.close()
    found = ErrorCode(response.error_code).name
    return [
        Cell("token without a key: create", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED.name, found),
        Cell("token without a key: log in", REFUSED, await login(port, _256, by_token(token))),
    ]


def token_cells(directory: Path) -> list[Cell]:
    """Try all of them on one broker, which starts again with other keys."""
    port = free_port()
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in ("alice", "bob", "admin"))
    settings = [
        f"listeners=SASL_PLAINTEXT://localhost:{port}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"sasl.jaas.config={MODULE} required {users};",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:admin",
        "connection.failed.authentication.delay.ms=10",
    ]
    admin = directory / "admin.properties"
    admin.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password={PASSWORD}\n"
    )
    with_key = [*settings, f"delegation.token.secret.key={KEY}"]
    with OncelogProcess(directory, with_key, port) as process:
        Oncelog(process.address)(f"user add carol --mechanism {_256} --command-config {admin}", text=f"{PASSWORD}\n")
        cells, token = asyncio.run(_before_restart(port))
    with OncelogProcess(directory, with_key, port):
        cells += asyncio.run(_after_restart(port, token, is_same=True))
    with OncelogProcess(directory, [*settings, f"delegation.token.secret.key={OTHER_KEY}"], port):
        cells += asyncio.run(_after_restart(port, token, is_same=False))
    with OncelogProcess(directory, settings, port):
        cells += asyncio.run(_without_key(port, token))
    log = "".join(path.read_text() for path in sorted(directory.glob("std*.log")))
    shown = [text for text in (_password(token.hmac), token.hmac.hex(), KEY) if text in log]
    return [*cells, Cell("token, secrets in the log", "none", ", ".join(shown) or "none")]
