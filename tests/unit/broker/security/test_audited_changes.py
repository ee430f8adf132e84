"""What an audit log says of a change, and what it must not say."""

import json

import pytest

from oncelog.broker.dispatch.request import ConnectionInfo, Principal, RequestContext
from oncelog.broker.security.audited_changes import describe_change
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from oncelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from oncelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

INFO = ConnectionInfo(client_host="10.0.0.7", listener_name="SASL_SSL", principal=Principal("User", "alice"))
CONTEXT = RequestContext(0, 1, "client", INFO)


def test_change_names_the_client_and_what_became_of_it() -> None:
    request = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(name="bob", mechanism=1, salt=b"pepper", salted_password=b"secret")]
    )
    response = AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user="bob", error_code=ErrorCode.UNACCEPTABLE_CREDENTIAL),
            AlterUserScramCredentialsResult(user="eve"),
        ]
    )
    (line,) = describe_change(CONTEXT, "AlterUserScramCredentials", request, response)
    assert line["principal"] == "User:alice"
    assert (line["host"], line["listener"], line["client_id"]) == ("10.0.0.7", "SASL_SSL", "client")
    assert line["errors"] == ["UNACCEPTABLE_CREDENTIAL"]
    assert json.loads(line["request"])["upsertions"][0]["name"] == "bob"
    assert "secret" not in str(line)
    assert "pepper" not in str(line)


def test_values_of_secret_and_unknown_settings_are_hidden() -> None:
    configs = {
        "log.retention.ms": "1000",
        "sasl.jaas.config": "secret",
        "listener.name.a.ssl.key.password": "secret",
        "retention.ms": "2000",
        "sasl.jaas.confg": "secret",
    }
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name="1",
                configs=[AlterableConfig(name=name, value=value) for name, value in configs.items()],
            )
        ]
    )
    (line,) = describe_change(CONTEXT, "IncrementalAlterConfigs", request, IncrementalAlterConfigsResponse())
    assert "secret" not in line["request"]
    assert "1000" in line["request"]
    assert "2000" in line["request"]
    assert "sasl.jaas.confg" in line["request"]


def test_secret_of_a_delegation_token_is_hidden_and_its_digest_leads_from_line_to_line() -> None:
    secret = b"\x01secret" * 9
    created = CreateDelegationTokenResponse(token_id="7c1f", hmac=secret)
    (first,) = describe_change(CONTEXT, "CreateDelegationToken", CreateDelegationTokenRequest(), created)
    renewal = RenewDelegationTokenRequest(hmac=memoryview(secret), renew_period_ms=5)
    (second,) = describe_change(CONTEXT, "RenewDelegationToken", renewal, RenewDelegationTokenResponse())
    digest = json.loads(second["request"])["hmac"]
    assert first["token"] == f"7c1f {digest}"
    assert "token" not in second
    assert "secret" not in json.dumps([first, second])


def refused_deletion(count: int, name: str) -> tuple[DeleteTopicsRequest, DeleteTopicsResponse]:
    request = DeleteTopicsRequest(topic_names=[name.format(number) for number in range(count)])
    results = [DeletableTopicResult(name="", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for _ in range(count)]
    return request, DeleteTopicsResponse(responses=results)


@pytest.mark.parametrize(
    ("count", "name"), [(100_000, "topic-{0}" * 5), (480, "\x01" * 32_000 + "{0}")], ids=["many", "long"]
)
def test_long_request_that_changed_nothing_is_cut_and_costs_little(count: int, name: str) -> None:
    request, response = refused_deletion(count, name)
    lines = describe_change(CONTEXT, "DeleteTopics", request, response)
    assert sum(len(line["request"]) for line in lines) < 60_000
    assert lines[0]["left_out"] > 0
    assert lines[0]["errors"] == ["TOPIC_AUTHORIZATION_FAILED"]


def test_changes_are_written_wherever_they_stand_in_a_long_request() -> None:
    request, response = refused_deletion(2_000, "some-long-name-of-a-topic-{0}")
    request.topic_names.append("payroll")
    response.responses.append(DeletableTopicResult(name="payroll", error_code=ErrorCode.NONE))
    lines = describe_change(CONTEXT, "DeleteTopics", request, response)
    assert [line["part"] for line in lines] == [f"{number} of {len(lines)}" for number in range(1, len(lines) + 1)]
    assert all(len(line["request"]) <= 8_192 for line in lines)
    written = json.loads("".join(line["request"] for line in lines))
    assert written["topic_names"][-1] == "payroll"
    assert len(written["topic_names"]) == 2_001
