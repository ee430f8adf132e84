"""DescribeClientQuotas and AlterClientQuotas: Kafka's errors, what is stored, and what is found again."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.broker.handlers.alter_client_quotas import handle_alter_client_quotas
from oncelog.broker.handlers.alter_user_scram_credentials import handle_alter_user_scram_credentials
from oncelog.broker.handlers.describe_client_quotas import handle_describe_client_quotas
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.unit.broker.handlers.administration import Denies, ask, new_disk, running_broker
from tests.unit.broker.handlers.test_user_scram_credentials import Store
from tests.unit.broker.virtual_time import in_virtual_time

VERSIONS = (0, 1)
Parts = dict[str, str | None]
"""The parts of an entity by type; None: the default."""


def entry(parts: Parts | Sequence[tuple[str, str | None]], **limits: float | None) -> EntryData:
    """The change of an entity; a limit of None is removed."""
    pairs = parts.items() if isinstance(parts, dict) else parts
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )


async def alter(
    broker: Broker, *entries: EntryData, version: int = 1, validate_only: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = await ask(broker, handle_alter_client_quotas, request, AlterClientQuotasResponse, version)
    response = decode(AlterClientQuotasResponse, version, encode(response, version))
    assert [each.entity for each in response.entries] == [each.entity for each in entries]
    return [(ErrorCode(each.error_code), each.error_message) for each in response.entries]


async def refusal(broker: Broker, change: EntryData) -> str | None:
    ((code, message),) = await alter(broker, change)
    assert code is ErrorCode.INVALID_REQUEST
    return message


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


async def describe(broker: Broker, *components: ComponentData, strict: bool = False, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = await ask(broker, handle_describe_client_quotas, request, DescribeClientQuotasResponse, version)
    return decode(DescribeClientQuotasResponse, version, encode(response, version))


async def found(
    broker: Broker, *components: ComponentData, strict: bool = False, version: int = 1
) -> dict[str, dict[str, float]]:
    response = await describe(broker, *components, strict=strict, version=version)
    assert response.error_code == ErrorCode.NONE
    return {
        ", ".join(f"{part.entity_type} {part.entity_name or '*'}" for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_quotas_that_are_set_are_described_and_those_removed_are_not(version: int) -> None:
    async with running_broker() as broker:
        changes = [
            entry({"user": "alice"}, producer_byte_rate=1_000, request_percentage=12.5),
            entry({"user": "alice", "client-id": None}, consumer_byte_rate=2_000),
            entry({"user": None, "client-id": "c/1"}, controller_mutation_rate=0.5),
            entry({"ip": "10.0.0.7"}, connection_creation_rate=3),
        ]
        assert await alter(broker, *changes, version=version) == [(ErrorCode.NONE, None)] * 4
        assert await found(broker, version=version) == {
            "user alice": {"producer_byte_rate": 1_000, "request_percentage": 12.5},
            "user alice, client-id *": {"consumer_byte_rate": 2_000},
            "user *, client-id c/1": {"controller_mutation_rate": 0.5},
            "ip 10.0.0.7": {"connection_creation_rate": 3},
        }
        removal = entry({"user": "alice"}, producer_byte_rate=None, consumer_byte_rate=None)
        assert await alter(broker, removal, version=version) == [(ErrorCode.NONE, None)]
        assert (await found(broker, version=version))["user alice"] == {"request_percentage": 12.5}


async def test_quotas_survive_a_restart() -> None:
    disk = new_disk()
    changes = [
        entry({"user": None, "client-id": None}, producer_byte_rate=1_002),
        entry({"user": "bob", "client-id": "c/1"}, request_percentage=50),
    ]
    async with running_broker(disk) as broker:
        assert {code for code, _ in await alter(broker, *changes)} == {ErrorCode.NONE}
        before = await found(broker)
    async with running_broker(disk) as broker:
        assert await found(broker) == before
        assert broker.quotas.produce.limits.find("x", "y") == (("x", "y"), 1_002)
        assert broker.quotas.request.limits.find("bob", "c/1") == (("bob", "c/1"), 50)


@in_virtual_time
async def test_quotas_lie_in_the_znodes_of_kafka() -> None:
    store = Store()
    async with running_broker(open_store=store.open) as broker:
        for parts, limit, path, config in [
            (
                {"user": None, "client-id": None},
                {"producer_byte_rate": 1_002},
                "users/<default>/clients/<default>",
                {"producer_byte_rate": "1002"},
            ),
            (
                {"user": "bob", "client-id": "c/1"},
                {"request_percentage": 50},
                "users/bob/clients/c%2F1",
                {"request_percentage": "50.0"},
            ),
            ({"user": None}, {"consumer_byte_rate": 7}, "users/<default>", {"consumer_byte_rate": "7"}),
            (
                {"client-id": "~ *"},
                {"controller_mutation_rate": 5},
                "clients/%7E%20%2A",
                {"controller_mutation_rate": "5.0"},
            ),
            ({"ip": None}, {"connection_creation_rate": 9}, "ips/<default>", {"connection_creation_rate": "9"}),
        ]:
            assert await alter(broker, entry(parts, **limit)) == [(ErrorCode.NONE, None)]
            assert await store.config(f"/config/{path}") == config


async def test_quotas_of_a_user_leave_its_credentials_as_they_are() -> None:
    async with running_broker() as broker:
        credential = ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"p" * 32
        )
        request = AlterUserScramCredentialsRequest(upsertions=[credential])
        await ask(broker, handle_alter_user_scram_credentials, request, AlterUserScramCredentialsResponse)
        await alter(broker, entry({"user": "alice"}, producer_byte_rate=5))
        removal = EntryData(
            entity=[EntityData(entity_type="user", entity_name="alice")],
            ops=[OpData(key="SCRAM-SHA-256", remove=True), OpData(key="producer_byte_rate", remove=True)],
        )
        assert await alter(broker, removal) == [(ErrorCode.NONE, None)]
        assert broker.scram_users.names() == ["alice"]
        assert await found(broker) == {}


async def test_alter_client_quotas_that_only_validates_changes_nothing() -> None:
    async with running_broker() as broker:
        changes = [entry({"user": "a"}, producer_byte_rate=5), entry({"user": "b"}, producer_byte_rate=-5)]
        codes = [code for code, _ in await alter(broker, *changes, validate_only=True)]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert await found(broker) == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (entry({"user": "a"}, nonsense=1), "Invalid configuration key nonsense"),
        (entry({"user": "a"}, connection_creation_rate=1), "Invalid configuration key connection_creation_rate"),
        (entry({"ip": "1.2.3.4"}, producer_byte_rate=1), "Invalid configuration key producer_byte_rate"),
        (entry({"user": "a"}, producer_byte_rate=0.0), "Quota producer_byte_rate must be greater than 0"),
        (entry({"user": "a"}, request_percentage=-1.0), "Quota request_percentage must be greater than 0"),
        (entry({"user": "a"}, request_percentage=float("nan")), "Quota request_percentage must be greater than 0"),
        (entry({"user": "a"}, consumer_byte_rate=1.5), "consumer_byte_rate cannot be a fractional value."),
        (
            entry({"user": "a"}, producer_byte_rate=1e30),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            entry({"ip": "1.2.3.4"}, connection_creation_rate=3e9),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (entry({"user": ""}, producer_byte_rate=1), "Empty user not supported"),
        (entry({}, producer_byte_rate=1), "Invalid empty client quota entity"),
        (entry({"group": "a"}, producer_byte_rate=1), "Unhandled client quota entity type: group"),
        (entry({"ip": "1.2.3.4", "user": "a"}, connection_creation_rate=1), "Invalid empty client quota entity"),
        (
            entry({"ip": "no address"}, connection_creation_rate=1),
            "no address is not a valid IP or resolvable host.",
        ),
        (
            entry([("user", "a"), ("user", "b")], producer_byte_rate=1),
            "Invalid empty client quota entity, duplicate entity entry user",
        ),
    ],
)
async def test_alter_client_quotas_refuses_what_kafka_refuses(change: EntryData, message: str) -> None:
    async with running_broker() as broker:
        assert await refusal(broker, change) == message
        assert await found(broker) == {}


async def test_entity_or_key_that_is_named_twice_is_refused_and_others_are_not() -> None:
    async with running_broker() as broker:
        twice = entry({"user": "b"}, producer_byte_rate=1)
        twice.ops *= 2
        results = await alter(
            broker,
            entry({"user": "a"}, producer_byte_rate=1),
            twice,
            entry({"user": "c"}, producer_byte_rate=1),
            entry({"user": "a"}, consumer_byte_rate=1),
        )
        assert results == [
            (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity user a"),
            (
                ErrorCode.INVALID_REQUEST,
                "Duplicate quota key producer_byte_rate not updating quota for this entity user b",
            ),
            (ErrorCode.NONE, None),
            (ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity user a"),
        ]
        assert await found(broker) == {"user c": {"producer_byte_rate": 1}}


EXACT, DEFAULT, ANY = 0, 1, 2


async def test_filter_selects_entities_by_their_parts() -> None:
    async with running_broker() as broker:
        entities: list[Parts] = [
            {"user": "alice"},
            {"user": None},
            {"user": "alice", "client-id": "c"},
            {"user": None, "client-id": "c"},
            {"client-id": "c"},
            {"client-id": None},
        ]
        await alter(broker, *(entry(parts, producer_byte_rate=1) for parts in entities))
        of_alice, of_c = component("user", EXACT, "alice"), component("client-id", EXACT, "c")
        assert set(await found(broker, of_alice)) == {"user alice", "user alice, client-id c"}
        assert set(await found(broker, of_alice, strict=True)) == {"user alice"}
        assert set(await found(broker, component("user", DEFAULT))) == {"user *", "user *, client-id c"}
        assert set(await found(broker, component("user", ANY), of_c)) == {
            "user alice, client-id c",
            "user *, client-id c",
        }
        assert set(await found(broker, component("client-id", ANY), strict=True)) == {"client-id c", "client-id *"}
        assert set(await found(broker, component("ip", ANY))) == set()
        assert len(await found(broker)) == 6
        assert await found(broker, strict=True) == {}


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([component("", ANY)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([component("group", ANY)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            [component("user", ANY), component("user", EXACT, "a")],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [component("user", EXACT)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [component("user", DEFAULT, "a")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [component("user", ANY, "a")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([component("user", 9)], ErrorCode.INVALID_REQUEST, "Unknown match type 9"),
        (
            [component("user", ANY), component("ip", ANY)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
async def test_describe_client_quotas_refuses_what_kafka_refuses(
    components: list[ComponentData], code: ErrorCode, message: str
) -> None:
    async with running_broker() as broker:
        response = await describe(broker, *components)
        assert (response.error_code, response.error_message, response.entries) == (code, message, None)


async def test_quota_requests_need_rights_to_the_configuration_of_the_cluster() -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS])
        assert (await describe(broker)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ((code, _),) = await alter(broker, entry({"user": "a"}, producer_byte_rate=1))
        assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
