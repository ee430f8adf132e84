"""InitProducerId (API key 22): give a producer its id and epoch.

Without a transactional id: a new id and epoch 0, from any broker. With one: the id that belongs to it, with the next
epoch, so that earlier incarnations are fenced; a transaction that they left open is aborted first.

Versions: 2 is flexible. From 3 on a producer can send the id and epoch that it has, to continue after an error
(KIP-360); it gives both or neither. 4 is the first whose clients know PRODUCER_FENCED; older clients get
INVALID_PRODUCER_EPOCH. 5 may get TRANSACTION_ABORTABLE. 6 is for two-phase commit, is not stable in Kafka and is not
served.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, Shaped, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from oncelog.coordinator.transaction.coordinator import InitProducerIdResult
from oncelog.coordinator.transaction.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_WITH_PRODUCER_FENCED: Final = 4
_MAX_NAME_LENGTH: Final = 200


def error_response(request: InitProducerIdRequest, version: int, error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


@handles(ApiKey.INIT_PRODUCER_ID, versions="0-5", error_response=error_response)
def handle_init_producer_id(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> Outcome:
    refusal = _refusal(broker, context, request)
    if refusal:
        return error_response(request, context.api_version, refusal)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    response = broker.transaction_coordinator.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if request.producer_id == NO_PRODUCER_ID else expected,
        client=_name_client(context),
        connection=context.connection,
    )
    return Shaped(response, lambda result: _response(result, context.api_version))


def _name_client(context: RequestContext) -> str:
    """Return the client's name for the log, which names the client that fenced another one."""
    name = "" if context.client_id is None else f" {context.client_id[:_MAX_NAME_LENGTH]!r}"
    return f"client{name} at {context.connection.client_host}:{context.connection.client_port}"


def _refusal(broker: Broker, context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    authorize = broker.authorizer.authorize
    transactional_id = request.transactional_id
    if transactional_id is None:
        # As in Kafka: a client that may write to some topic may do so idempotently.
        may_write = broker.authorizer.permits_any(context, Operation.WRITE, ResourceType.TOPIC)
        if not may_write and not authorize(context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif not authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _response(result: InitProducerIdResult, version: int) -> InitProducerIdResponse:
    error, producer = result
    if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)
