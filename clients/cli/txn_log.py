"""``oncelog txn log``: the history of a transactional id, and why it was fenced and by whom."""

from datetime import UTC, datetime
from typing import Any, Final

import click

from oncelog.clients.admin.transaction_history import TransactionHistory, read_transaction_history
from oncelog.clients.admin.transaction_records import HistoryRecord
from oncelog.clients.admin.transaction_steps import Step, explain
from oncelog.clients.cli.session import Session, example, with_session
from oncelog.clients.cli.txn_arguments import transactional_id_argument
from oncelog.clients.errors import Refusal
from oncelog.protocol.errors import ErrorCode

_NOTE: Final = "compaction leaves only the newest record of each id in older segments: steps may be missing"
_COLUMNS: Final = (
    "offset",
    "time",
    "state",
    "producer_id",
    "epoch",
    "previous_id",
    "next_id",
    "timeout_ms",
    "version",
    "partitions",
    "fenced",
    "source",
    "why",
)


@click.command(epilog=example("oncelog txn log billing-1", "oncelog txn log billing-1 --format json"))
@transactional_id_argument
@with_session()
def log(session: Session, transactional_id: str) -> None:
    """Show the history of a transactional id, oldest first: each state, and its cause.

    WHY is the cause that the coordinator recorded, or one derived from the records before and after; SOURCE says which.
    FENCED is the producer id and epoch of a producer that was fenced by that step.
    """
    history = session.run(lambda cluster: read_transaction_history(cluster, transactional_id))
    steps = explain([record.snapshot for record in history.records])
    rows = [_row(record, step) for record, step in zip(history.records, steps, strict=True)]
    _show(session, history, rows)
    if not rows:
        session.fail({f"transactional id {transactional_id}": Refusal(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)})


def _show(session: Session, history: TransactionHistory, rows: list[dict[str, Any]]) -> None:
    if session.output == "json":
        fields = {
            "transactional_id": history.transactional_id,
            "log": str(history.topic_partition),
            "begin": history.begin,
            "end": history.end,
            "records_left": history.records_left,
            "note": _NOTE,
        }
        session.show_record(fields, "records", rows, _COLUMNS)
        return
    session.show_rows(rows, _COLUMNS, none="No records of this transactional id.")
    click.echo(
        f"\n{history.topic_partition} has {history.records_left} records between offsets {history.begin} and "
        f"{history.end}; {_NOTE}."
    )


def _row(record: HistoryRecord, step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": record.offset,
        "time": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "state": "forgotten",
        "fenced": None if step.fenced is None else "{} epoch {}".format(*step.fenced),
        "source": "derived" if step.is_derived else "recorded",
        "why": step.why,
    }
    if record.snapshot is None:
        return row
    return row | {
        "state": record.snapshot.state,
        "producer_id": record.snapshot.producer_id,
        "epoch": record.snapshot.producer_epoch,
        "previous_id": record.snapshot.previous_producer_id,
        "next_id": record.snapshot.next_producer_id,
        "timeout_ms": record.snapshot.timeout_ms,
        "start_ms": record.snapshot.start_ms,
        "version": record.snapshot.client_transaction_version,
        "partitions": [str(each) for each in record.snapshot.partitions],
        "cause": record.snapshot.cause,
    }
