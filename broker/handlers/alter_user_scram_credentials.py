"""AlterUserScramCredentials (API key 51): adds, replaces and deletes credentials of users.

The client computes the salted password, slowly; this broker derives from it the keys that are kept. What is requested
for one user is done as a whole or not at all. A user may be named once for each mechanism, as in Kafka 3.9. Any broker
takes the request: the write is conditional in the metadata store, like every change of a configuration.

Version 0 is the only one.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

from oncelog.broker.config.resource_settings import LONGEST_NAME
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.handlers.config_requests import alter_in_store
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.broker.security.scram_users import user_resource
from oncelog.coordinator.controller.api_error import ApiError
from oncelog.coordinator.controller.config_changes import ConfigAlteration, ConfigOperation, OperationType
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.protocol.sasl.mechanisms import SCRAM_MECHANISMS
from oncelog.protocol.sasl.scram import (
    LONGEST_SALT,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    format_credential,
    new_credential,
)

_MECHANISMS: Final = {each.type: each for each in SCRAM_MECHANISMS.values()}
_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion
_LONGEST_SALTED_PASSWORD: Final = 1_024
_NO_ZNODES: Final = (".", "..")
_TWICE: Final = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, version: int, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Return the error for every user."""
    return _response({name: ApiError(error) for name in _users(request)})


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", error_response=refuse_alter_user_scram_credentials)
def handle_alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse_alter_user_scram_credentials(request, 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _alter(broker, request)


async def _alter(broker: Broker, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    decided = decide_alterations(request)
    alterations = [each for each in decided.values() if isinstance(each, ConfigAlteration)]
    results = iter(await alter_in_store(broker, alterations))
    return _response(
        {name: next(results) if isinstance(each, ConfigAlteration) else each for name, each in decided.items()}
    )


def decide_alterations(request: AlterUserScramCredentialsRequest) -> dict[str, ConfigAlteration | ApiError]:
    """Return what to do for each user, or why nothing may be done."""
    changes = _changes(request)
    times = Counter((each.name, each.mechanism) for each in changes)
    decided: dict[str, list[ConfigOperation] | ApiError] = {}
    for each in changes:
        before = decided.setdefault(each.name, [])
        if isinstance(before, ApiError):
            continue
        operation = _TWICE if times[each.name, each.mechanism] > 1 else _operation(each)
        if isinstance(operation, ApiError):
            decided[each.name] = operation
        else:
            before.append(operation)
    return {
        name: each
        if isinstance(each, ApiError)
        else ConfigAlteration(resource=user_resource(name), operations=tuple(each))
        for name, each in decided.items()
    }


def _operation(change: _Change) -> ConfigOperation | ApiError:
    mechanism = _MECHANISMS.get(change.mechanism)
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(change.name) > LONGEST_NAME or change.name in _NO_ZNODES:
        text = f"Username must not be . or .., or longer than {LONGEST_NAME} characters"
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if mechanism is None:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        return ConfigOperation(mechanism.name, OperationType.DELETE)
    return _upsertion(mechanism, change)


def _upsertion(mechanism: ScramMechanism, change: ScramCredentialUpsertion) -> ConfigOperation | ApiError:
    if change.iterations < MIN_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not 0 < len(change.salt) <= LONGEST_SALT or not 0 < len(change.salted_password) <= _LONGEST_SALTED_PASSWORD:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt or the salted password is empty or too long")
    credential = new_credential(mechanism, change.salted_password, salt=change.salt, iterations=change.iterations)
    return ConfigOperation(mechanism.name, OperationType.SET, format_credential(credential))


def _changes(request: AlterUserScramCredentialsRequest) -> list[_Change]:
    return [*request.deletions, *request.upsertions]


def _users(request: AlterUserScramCredentialsRequest) -> Sequence[str]:
    return list(dict.fromkeys(each.name for each in _changes(request)))


def _response(errors: dict[str, ApiError]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
            for name, error in errors.items()
        ]
    )
