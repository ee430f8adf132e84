"""ListTransactions (API key 66): the transactional ids that this broker coordinates, filtered.

Names of states that do not exist are reported back; if only such were requested, nothing is listed.

Versions: 1 can filter by the age of the transaction; 2 by a pattern of the id (RE2 syntax, the whole id);
INVALID_REGULAR_EXPRESSION if the pattern is not valid, or beyond a bound of ``regular_expression``.
"""

from typing import Final

from oncelog.broker.dispatch.api_handler import Outcome, handles
from oncelog.broker.dispatch.request import RequestContext
from oncelog.broker.dispatch.sliced_work import Steps, new_budget
from oncelog.broker.parts import Broker
from oncelog.broker.security.authorizer import Operation, ResourceType
from oncelog.coordinator.regular_expression import InvalidRegularExpression, RegularExpression, compile_units
from oncelog.coordinator.transaction.listing import TransactionFilter, parse_states
from oncelog.coordinator.transaction.state import Transaction
from oncelog.protocol.api_keys import ApiKey
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from oncelog.protocol.records.record_walk import WorkBudget

_UNITS_PER_TRANSACTION: Final = 3


@handles(ApiKey.LIST_TRANSACTIONS, versions="0-2")
def handle_list_transactions(broker: Broker, context: RequestContext, request: ListTransactionsRequest) -> Outcome:
    budget = new_budget()
    steps = _list(broker, context, request, budget)
    return broker.sliced_work.start(steps, budget, context.connection, needs_place=False)


def _list(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest, budget: WorkBudget
) -> Steps[ListTransactionsResponse]:
    pattern = request.transactional_id_pattern
    budget.left -= compile_units(pattern or "")
    if budget.left <= 0:
        yield None
    try:
        id_pattern = RegularExpression(pattern) if pattern else None
    except InvalidRegularExpression:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states, unknown_states = parse_states(request.state_filters)
    wanted = TransactionFilter(
        states=states,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        id_pattern=id_pattern,
    )
    selection = broker.transaction_coordinator.list_transactions(wanted, budget)
    if isinstance(selection, ErrorCode):
        return ListTransactionsResponse(error_code=selection)
    response = ListTransactionsResponse(unknown_state_filters=unknown_states)
    for txn in (yield from selection):
        budget.left -= _UNITS_PER_TRANSACTION
        if budget.left <= 0:
            yield None
        if _is_visible(broker, context, txn):
            response.transaction_states.append(_listed(txn))
    return response


def _is_visible(broker: Broker, context: RequestContext, txn: Transaction) -> bool:
    return broker.authorizer.permits(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id)


def _listed(txn: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=txn.transactional_id,
        producer_id=txn.metadata.producer_id,
        transaction_state=txn.metadata.state.label,
    )
