"""The causes of those errors of brokers that a setting or another producer explains, and what to change. Pure."""

from dataclasses import replace

from oncelog.clients.errors import Refusal
from oncelog.clients.producer.producer_config import ProducerConfig
from oncelog.protocol.errors import ErrorCode


class RefusalCauses:
    """The causes for a producer with these settings."""

    def __init__(self, config: ProducerConfig) -> None:
        self._causes = {
            ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
                f"transaction_timeout_ms ({config.transaction_timeout_ms}) is above transaction.max.timeout.ms of the"
                " brokers: lower the one or raise the other"
            ),
            ErrorCode.MESSAGE_TOO_LARGE: (
                "a record is larger than max.message.bytes of its topic (by default message.max.bytes of the brokers):"
                " raise that, or send smaller records; max_request_bytes of this producer is"
                f" {config.max_request_bytes}"
            ),
        }
        if config.transactional_id is not None:
            newer_epoch = (
                f"the transactional id {config.transactional_id!r} has a newer epoch: another producer with this"
                " transactional id has started, or the coordinator has aborted the transaction after"
                f" transaction_timeout_ms ({config.transaction_timeout_ms})"
            )
            self._causes |= {
                ErrorCode.INVALID_PRODUCER_EPOCH: newer_epoch,
                ErrorCode.PRODUCER_FENCED: f"{newer_epoch}; close this producer and create another one",
            }

    def explain(self, refused: Refusal) -> Refusal:
        """Return the refusal with its cause behind the broker's message."""
        cause = self._causes.get(refused.error)
        if cause is None:
            return refused
        return replace(refused, message=f"{refused.message}; {cause}" if refused.message else cause)
