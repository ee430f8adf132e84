"""The users of SCRAM: their credentials are described, set and deleted (KIP-554).

A password does not leave this process: what is sent is its salted form, which is slow to compute, in a thread.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from oncelog.clients.cluster import Cluster
from oncelog.clients.errors import Refusal, refusal, require_success
from oncelog.clients.routes import Controller
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import MIN_ITERATIONS, salt_of, salt_password

if TYPE_CHECKING:
    from oncelog.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

_SALT_BITS: Final = 130
_NAMES: Final = {each.type: each.name for each in SCRAM_MECHANISMS.values()}


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user, and what is known of its credentials."""

    name: str
    iterations: dict[str, int]
    """By the name of the mechanism."""


async def list_users(cluster: Cluster, names: Collection[str] = ()) -> dict[str, ScramUser | Refusal]:
    """Return the named users, or all that have a credential. Raises ``BrokerRefused``."""
    from oncelog.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        UserName,
    )

    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    response = await cluster.call(
        Controller(), request, DescribeUserScramCredentialsResponse, errors=lambda r: [r.error_code]
    )
    require_success("users", response.error_code, response.error_message)
    return {
        each.user: refusal(each.error_code, each.error_message)
        or ScramUser(
            each.user,
            {_NAMES.get(info.mechanism, str(info.mechanism)): info.iterations for info in each.credential_infos},
        )
        for each in response.results
    }


async def set_password(
    cluster: Cluster,
    user: str,
    password: str,
    *,
    mechanism: str,
    iterations: int = MIN_ITERATIONS,
    rng: Random | None = None,
) -> Refusal | None:
    """Set a user's password for one mechanism; the user need not exist. ``rng`` makes the salt."""
    from oncelog.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )

    scram = SCRAM_MECHANISMS[mechanism]
    salt = salt_of((rng or SystemRandom()).getrandbits(_SALT_BITS))
    loop = asyncio.get_running_loop()
    salted = await loop.run_in_executor(None, salt_password, scram, password, salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=scram.type, iterations=iterations, salt=salt, salted_password=salted
    )
    return await _alter(cluster, user, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_passwords(cluster: Cluster, user: str, mechanisms: Collection[str]) -> Refusal | None:
    """Delete a user's passwords for these mechanisms: of all of them, or of none."""
    from oncelog.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    deletions = [
        ScramCredentialDeletion(name=user, mechanism=SCRAM_MECHANISMS[mechanism].type) for mechanism in mechanisms
    ]
    return await _alter(cluster, user, AlterUserScramCredentialsRequest(deletions=deletions))


async def _alter(cluster: Cluster, user: str, request: "AlterUserScramCredentialsRequest") -> Refusal | None:
    from oncelog.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse

    response = await cluster.call(
        Controller(),
        request,
        AlterUserScramCredentialsResponse,
        errors=lambda r: [result.error_code for result in r.results],
    )
    result = next((each for each in response.results if each.user == user), None)
    if result is None:
        return Refusal(error=ErrorCode.UNKNOWN_SERVER_ERROR, message="the broker did not say")
    return refusal(result.error_code, result.error_message)
