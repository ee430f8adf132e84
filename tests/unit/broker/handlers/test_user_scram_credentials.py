"""AlterUserScramCredentials and DescribeUserScramCredentials on a whole broker."""

from typing import Any

import pytest

from oncelog.broker.handlers.alter_user_scram_credentials import handle_alter_user_scram_credentials
from oncelog.broker.handlers.describe_user_scram_credentials import handle_describe_user_scram_credentials
from oncelog.broker.metadata.store_choice import open_store
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.coordinator.metadata_store import znodes
from oncelog.coordinator.metadata_store.store import MetadataStore, Session
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from oncelog.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, new_credential
from tests.unit.broker.handlers.administration import Denies, ask, running_broker
from tests.unit.broker.virtual_time import in_virtual_time

NAME = "al ice@x"


def upsertion(name: str = NAME, mechanism: int = 1, iterations: int = 4096, **fields: Any) -> ScramCredentialUpsertion:
    given = {"salt": b"salt", "salted_password": b"salted", **fields}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, **given)


async def alter(broker: Broker, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
    )
    response = await ask(broker, handle_alter_user_scram_credentials, request, AlterUserScramCredentialsResponse)
    return {result.user: ErrorCode(result.error_code) for result in response.results}


async def describe(broker: Broker, *names: str) -> dict[str, Any]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
    response = await ask(broker, handle_describe_user_scram_credentials, request, DescribeUserScramCredentialsResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        result.user: ErrorCode(result.error_code).name
        if result.error_code
        else {info.mechanism: info.iterations for info in result.credential_infos}
        for result in response.results
    }


class Store:
    """Keeps the metadata store that a broker opens."""

    async def open(self, *arguments: Any) -> MetadataStore:
        self._store = await open_store(*arguments)
        return self._store

    @property
    def session(self) -> Session:
        assert self._store.session is not None
        return self._store.session

    async def config(self, path: str) -> dict[str, str]:
        znode = await self.session.get(path)
        assert znode is not None
        return znodes.decode_config(znode.data)


@in_virtual_time
async def test_credentials_are_stored_beside_quotas_in_the_form_of_kafka() -> None:
    store = Store()
    async with running_broker(open_store=store.open) as broker:
        path = "/config/users/al%20ice%40x"
        await store.session.create(path, b'{"version":1,"config":{"producer_byte_rate":"1024"}}')
        assert await alter(broker, upsertion(), upsertion(mechanism=2, iterations=8192)) == {NAME: ErrorCode.NONE}
        found = await store.config(path)
        assert found.keys() == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
        expected = new_credential(SCRAM_SHA_256, b"salted", salt=b"salt", iterations=4096)
        assert broker.scram_users.find(SCRAM_SHA_256, NAME) == expected
        assert await describe(broker) == {NAME: {1: 4096, 2: 8192}}
        assert await alter(broker, ScramCredentialDeletion(name=NAME, mechanism=1)) == {NAME: ErrorCode.NONE}
        assert (await store.config(path)).keys() == {"producer_byte_rate", "SCRAM-SHA-512"}
        assert broker.scram_users.find(SCRAM_SHA_256, NAME) is None
        assert broker.scram_users.find(SCRAM_SHA_512, NAME) is not None
        assert await describe(broker, NAME) == {NAME: {2: 8192}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name=".."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(name="u" * 1_001), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=bytes(2_000)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion(name=NAME, mechanism=1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion(name="", mechanism=1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_change_that_makes_no_sense_is_refused_with_the_code_of_kafka(
    change: ScramCredentialUpsertion | ScramCredentialDeletion, error: ErrorCode
) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with running_broker() as broker:
            assert await alter(broker, change, upsertion(name="other")) == {change.name: error, "other": ErrorCode.NONE}
            assert await describe(broker) == {"other": {1: 4096}}

    scenario()


@in_virtual_time
async def test_user_with_one_bad_change_keeps_everything() -> None:
    async with running_broker() as broker:
        bad = upsertion(mechanism=2, iterations=1)
        assert await alter(broker, upsertion(), bad) == {NAME: ErrorCode.UNACCEPTABLE_CREDENTIAL}
        twice = await alter(broker, upsertion(), ScramCredentialDeletion(name=NAME, mechanism=1))
        assert twice == {NAME: ErrorCode.DUPLICATE_RESOURCE}
        assert await describe(broker) == {}


@in_virtual_time
async def test_unknown_user_and_user_named_twice_are_refused() -> None:
    async with running_broker() as broker:
        await alter(broker, upsertion("a"), upsertion("b"))
        assert await describe(broker, "a", "b", "b", "c") == {
            "a": {1: 4096},
            "b": "DUPLICATE_RESOURCE",
            "c": "RESOURCE_NOT_FOUND",
        }


@in_virtual_time
async def test_malformed_credential_of_the_store_is_no_credential() -> None:
    store = Store()
    async with running_broker(open_store=store.open) as broker:
        await alter(broker, upsertion("a"))
        session = store.session
        await session.set("/config/users/a", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}')
        await session.create(
            "/config/changes/config_change_", b'{"version":2,"entity_path":"users/a"}', sequential=True
        )
        await broker.configs.refresh(session, lambda: None)
        assert broker.scram_users.find(SCRAM_SHA_256, "a") is None


@in_virtual_time
async def test_client_without_permission_is_refused() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies({Operation.ALTER, Operation.DESCRIBE})
        assert await alter(broker, upsertion()) == {NAME: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        for users in (None, [UserName(name=NAME), UserName(name="bob")]):
            request = DescribeUserScramCredentialsRequest(users=users)
            response = await ask(
                broker, handle_describe_user_scram_credentials, request, DescribeUserScramCredentialsResponse
            )
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert [(result.user, result.error_code) for result in response.results] == [
                (user.name, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) for user in users or ()
            ]
