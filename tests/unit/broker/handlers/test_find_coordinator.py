"""FindCoordinator: the leader of the key's partition, once the internal topic is there."""

import pytest

from oncelog.broker.handlers.find_coordinator import handle_find_coordinator
from oncelog.broker.security.authorizer import Operation
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import encode_response
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.broker.handlers.administration import Denies, ask, running_broker
from tests.unit.broker.handlers.cluster_tales import broker_with, partition, tell

GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.mark.parametrize(
    ("version", "key_type", "topic"),
    [(version, GROUP, "__consumer_offsets") for version in range(7)]
    + [(version, TRANSACTION, "__transaction_state") for version in range(1, 7)],
)
async def test_first_find_coordinator_creates_the_topic(version: int, key_type: int, topic: str) -> None:
    async with running_broker() as broker:
        request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])
        response = await ask(broker, handle_find_coordinator, request, FindCoordinatorResponse, version)
        assert encode_response(1, response, version)
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id, found.host) == (ErrorCode.NONE, 1, "localhost")
        assert found.port == broker.listeners.bound[0].port
        image = broker.metadata.image.topic(topic)
        assert image is not None
        assert len(image.partitions) == 50
        assert broker.configs.topic_overrides(topic)["segment.bytes"] == "104857600"


async def test_find_coordinator_of_many_keys_has_a_result_for_each() -> None:
    async with running_broker() as broker:
        states = [partition(index, 1 + index % 3, [1], [1]) for index in range(50)]
        tell(broker, [broker_with(1), broker_with(2)], {"__consumer_offsets": states})
        # Java's "".hashCode() is 0, "a" is 97 and "b" is 98: partitions 0, 47 and 48, led by 1, 3 and 1.
        request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["", "a", "b"])
        response = await ask(broker, handle_find_coordinator, request, FindCoordinatorResponse, 4)
        assert [(one.key, one.error_code, one.node_id, one.host, one.port) for one in response.coordinators] == [
            ("", ErrorCode.NONE, 1, "host1", 9001),
            ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1),
            ("b", ErrorCode.NONE, 1, "host1", 9001),
        ]


async def test_too_few_brokers_for_the_topic_is_not_available_and_the_log_names_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_broker(transaction_state_log_replication_factor="3") as broker:
        request = FindCoordinatorRequest(key="k", key_type=TRANSACTION)
        response = await ask(broker, handle_find_coordinator, request, FindCoordinatorResponse, 2)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (response.node_id, response.host, response.port) == (-1, "", -1)
        assert response.error_message == "The coordinator is not available."
    assert "lower transaction.state.log.replication.factor" in caplog.text


@pytest.mark.parametrize("key_type", [SHARE, 3, -1])
@pytest.mark.parametrize("version", [1, 4, 6])
async def test_other_types_of_coordinators_are_refused(key_type: int, version: int) -> None:
    async with running_broker() as broker:
        request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])
        response = await ask(broker, handle_find_coordinator, request, FindCoordinatorResponse, version)
        found = response.coordinators[0] if version >= 4 else response
        assert found.error_code == ErrorCode.INVALID_REQUEST
        assert broker.metadata.image.topics == {}


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (TRANSACTION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_find_coordinator_of_an_unauthorized_client_is_refused(key_type: int, error: ErrorCode) -> None:
    async with running_broker() as broker:
        broker.authorizer = Denies([Operation.DESCRIBE])
        request = FindCoordinatorRequest(key="k", key_type=key_type)
        response = await ask(broker, handle_find_coordinator, request, FindCoordinatorResponse, 1)
        assert response.error_code == error
