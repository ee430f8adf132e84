"""Message classes: construction, equality, and names that the machinery must not take."""

import pytest

from oncelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest
from oncelog.protocol.messages.fetch import FetchRequest
from oncelog.protocol.messages.produce import PartitionProduceData
from oncelog.protocol.schema import NO_VERSIONS, Versions, parse_versions


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", Versions(3, 3)), ("0-4", Versions(0, 4)), ("2+", Versions(2, 32_767)), ("none", NO_VERSIONS)],
)
def test_version_ranges_are_written_as_in_kafka(text: str, versions: Versions) -> None:
    assert parse_versions(text) == versions


def test_structure_may_have_a_field_called_api_key() -> None:
    assert ApiVersion(api_key=3).api_key == 3
    assert (ApiVersion.api_key, ApiVersionsRequest.api_key) == (None, 18)


def test_default_lists_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(None)  # type: ignore[arg-type]
    assert second.topics == []


def test_messages_are_compared_by_value_and_class() -> None:
    assert FetchRequest(max_bytes=1) == FetchRequest(max_bytes=1)
    assert FetchRequest(max_bytes=1) != FetchRequest(max_bytes=2)
    assert FetchRequest() != ApiVersionsRequest()


def test_messages_are_mutable_and_therefore_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(FetchRequest())


def test_misspelt_field_is_refused() -> None:
    request = FetchRequest()
    with pytest.raises(AttributeError):
        request.max_byte = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchRequest(max_byte=1)  # type: ignore[call-arg]


def test_payloads_are_not_shown() -> None:
    assert repr(PartitionProduceData(records=b"secret")) == "PartitionProduceData(index=0, records=<6 bytes>)"
