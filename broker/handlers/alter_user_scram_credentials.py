"""AlterUserScramCredentials (API key 51): adds, replaces and deletes credentials of users.

The client computes the salted password, slowly; this broker derives from it the keys that are kept. What is requested
for one user is done as a whole or not at all. A user may be named once for each mechanism, as in Kafka 3.9. Any broker
takes the request: the write is conditional in the metadata store, like every change of a configuration.

Version 0 is the only one.
"""

from functools import partial
from typing import Final, TypeAlias

from oncelog.broker.config.resource_settings import LONGEST_NAME
from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, in_slices, new_budget
from oncelog.broker.handlers.config_requests import alter_in_store
from oncelog.broker.handlers.sliced_refusal import refuse_in_slices
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
from oncelog.protocol.records.record_walk import WorkBudget
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
_UNITS_PER_USER: Final = 8
_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion
_LONGEST_SALTED_PASSWORD: Final = 1_024
_NO_ZNODES: Final = (".", "..")
_NO_CREDENTIAL: Final = ApiError(
    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
)
_TWICE: Final = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def refuse_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, version: int, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Return the error for every user."""
    names = dict.fromkeys(each.name for each in _changes(request))
    return AlterUserScramCredentialsResponse(results=[_result(name, ApiError(error)) for name in names])


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", error_response=refuse_alter_user_scram_credentials)
def handle_alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Outcome:
    if not broker.authorizer.authorize(context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        names = dict.fromkeys(each.name for each in _changes(request))
        refuse = partial(_result, error=ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return refuse_in_slices(
            broker, context, names, refuse, lambda refused: AlterUserScramCredentialsResponse(results=list(refused))
        )
    return _alter(broker, context, request)


async def _alter(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    budget = new_budget()
    decided = await broker.sliced_work.finish(_decide(request, budget), budget, context.connection)
    alterations = [each for each in decided.values() if isinstance(each, ConfigAlteration)]
    results = iter(await alter_in_store(broker, alterations))

    def result(item: tuple[str, ConfigAlteration | ApiError]) -> AlterUserScramCredentialsResult:
        name, each = item
        return _result(name, next(results) if isinstance(each, ConfigAlteration) else each)

    steps = in_slices(decided.items(), result, budget, 1)
    return AlterUserScramCredentialsResponse(results=await broker.sliced_work.finish(steps, budget, context.connection))


def _changes(request: AlterUserScramCredentialsRequest) -> list[_Change]:
    return [*request.deletions, *request.upsertions]


def _decide(
    request: AlterUserScramCredentialsRequest, budget: WorkBudget
) -> Steps[dict[str, ConfigAlteration | ApiError]]:
    """Return what to do for each user, or why nothing may be done."""
    changes: dict[str, list[_Change]] = {}
    for each in _changes(request):
        changes.setdefault(each.name, []).append(each)
        budget.left -= 1
        if budget.left <= 0:
            yield None
    decided = yield from in_slices(changes.items(), _decide_for_user, budget, _UNITS_PER_USER)
    return dict(zip(changes, decided, strict=True))


def _decide_for_user(item: tuple[str, list[_Change]]) -> ConfigAlteration | ApiError:
    name, changes = item
    if len({each.mechanism for each in changes}) < len(changes):
        return _TWICE
    operations = []
    for each in changes:
        operation = _operation(each)
        if isinstance(operation, ApiError):
            return operation
        operations.append(operation)
    return ConfigAlteration(resource=user_resource(name), operations=tuple(operations))


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
        return ConfigOperation(mechanism.name, OperationType.DELETE, unless_missing=_NO_CREDENTIAL)
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


def _result(name: str, error: ApiError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
