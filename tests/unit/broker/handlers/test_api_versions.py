"""ApiVersions says what the handlers serve, and takes the client's name if it is one."""

from typing import Any

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo, RequestContext
from oncelog.broker.handlers import all_handlers
from oncelog.broker.handlers.api_versions import handle_api_versions
from oncelog.coordinator.controller.finalized_features import FinalizedFeatureCache
from oncelog.coordinator.metadata_store.store import Stat
from oncelog.coordinator.metadata_store.znodes import FinalizedFeatures
from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


class _Broker:
    handlers = all_handlers()

    def __init__(self, finalised: FinalizedFeatures) -> None:
        self.features = FinalizedFeatureCache()
        self.features.learn(finalised, Stat(czxid=1, mzxid=1, version=7))


VERSION_2 = FinalizedFeatures(levels={"transaction.version": 2})


def ask(
    version: int, name: str = "librdkafka", software_version: str = "2.15.0", features: FinalizedFeatures = VERSION_2
) -> tuple[ApiVersionsResponse, Any]:
    connection = ConnectionInfo(client_host="127.0.0.1", listener_name="PLAINTEXT")
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    response = handle_api_versions(_Broker(features), RequestContext(version, 1, None, connection), request)  # type: ignore[arg-type]
    assert isinstance(response, ApiVersionsResponse)
    return response, connection


def on_the_wire(version: int, features: FinalizedFeatures = VERSION_2) -> ApiVersionsResponse:
    """What a client reads."""
    response, _ = ask(version, features=features)
    return decode(ApiVersionsResponse, version, encode(response, version))


def finalised(response: ApiVersionsResponse) -> list[tuple[str, int, int]]:
    return [(f.name, f.min_version_level, f.max_version_level) for f in response.finalized_features]


def test_api_versions_lists_the_ranges_of_the_handlers() -> None:
    response, _ = ask(4)
    reported = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert reported == {h.api_key: (h.advertised.first, h.advertised.last) for h in all_handlers()}
    assert reported[0] == (0, 13)
    assert reported[1] == (0, 18)
    assert reported[18] == (0, 4)


@pytest.mark.parametrize(
    ("api_key", "first", "last"),
    [
        (0, 0, 7), (1, 4, 11), (2, 1, 3), (3, 0, 6), (8, 2, 5), (9, 1, 4), (10, 0, 2), (11, 0, 5), (12, 0, 3),
        (13, 0, 3), (14, 0, 3), (19, 2, 3), (20, 1, 1), (22, 0, 4), (24, 0, 3), (25, 0, 3), (26, 0, 3), (28, 0, 3),
    ],
)  # fmt: skip
def test_api_versions_of_each_client_overlap_with_those_served(api_key: int, first: int, last: int) -> None:
    """kafkajs looks only at the maximum; librdkafka and aiokafka want version 0 of the transaction APIs."""
    response, _ = ask(4)
    key = next(key for key in response.api_keys if key.api_key == api_key)
    assert key.min_version <= first
    assert key.max_version >= last


@pytest.mark.parametrize("version", range(3))
def test_api_versions_before_version_3_has_no_features(version: int) -> None:
    response = on_the_wire(version)
    assert response.error_code == ErrorCode.NONE
    assert response.supported_features == []
    assert response.finalized_features == []
    assert response.finalized_features_epoch == -1


def test_api_versions_3_omits_features_whose_lowest_level_is_0() -> None:
    """KAFKA-17011: its clients take that for an error."""
    response = on_the_wire(3)
    assert response.supported_features == []
    assert finalised(response) == [("transaction.version", 2, 2)]
    assert response.finalized_features_epoch == 7


def test_api_versions_4_has_supported_and_finalised_features() -> None:
    response = on_the_wire(4)
    assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == [
        ("transaction.version", 0, 2),
        ("eligible.leader.replicas.version", 0, 1),
    ]
    assert finalised(response) == [("transaction.version", 2, 2)]
    assert response.finalized_features_epoch == 7


def test_feature_of_level_0_is_not_finalised() -> None:
    """The epoch alone tells clients that this is news."""
    response = on_the_wire(4, FinalizedFeatures(levels={"transaction.version": 0}))
    assert response.finalized_features == []
    assert response.finalized_features_epoch == 7


def test_api_versions_records_the_clients_software() -> None:
    _, connection = ask(3, "apache-kafka-java", "4.3.0-SNAPSHOT")
    assert connection.client_software_name == "apache-kafka-java"
    assert connection.client_software_version == "4.3.0-SNAPSHOT"


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a-", "1"), ("a b", "1"), ("a", "1.0.0+x"), ("ä", "1"), ("a\n", "1")],
)
def test_api_versions_with_invalid_software_name_is_refused(name: str, version: str) -> None:
    response, connection = ask(3, name, version)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == []
    assert connection.client_software_name == "unknown"


def test_api_versions_before_version_3_accepts_any_software_name() -> None:
    response, _ = ask(2, "", "")
    assert response.error_code == ErrorCode.NONE


def test_api_versions_of_unknown_version_gets_the_range_of_this_api_only() -> None:
    response, _ = ask(5)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
