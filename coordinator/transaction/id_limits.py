"""The bounds of transactional ids: how long a new one may be, and how many a broker keeps."""

import logging

from oncelog.coordinator.transaction.settings import TransactionConfig
from oncelog.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


def validate_new_id(transactional_id: str, id_count: int, config: TransactionConfig) -> ErrorCode:
    """Bound the length and the number of ids: each is kept for a week, whichever client made it."""
    if len(transactional_id) > config.max_id_length:
        logger.warning(
            "Refused a transactional id of %d characters: oncelog.transactional.id.max.length is %d",
            len(transactional_id),
            config.max_id_length,
        )
        return ErrorCode.INVALID_REQUEST
    if id_count >= config.max_ids:
        logger.warning(
            "Refused the transactional id %s: oncelog.transactional.ids.max.count is %d",
            transactional_id,
            config.max_ids,
        )
        return ErrorCode.POLICY_VIOLATION
    return ErrorCode.NONE
