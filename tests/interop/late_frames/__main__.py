"""Late frames for each client on each broker: ``python -m tests.interop.late_frames --help``.

Prints what was found in each run, and a table of all of them at the end. Ends with 1 if our broker or version 2 let
anything through, or version 1 on Apache Kafka nothing: then the reproduction of KAFKA-17754 has gone.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.interop.late_frames.client import PhasedClient
from tests.interop.late_frames.clients import VERSION_1, VERSION_2
from tests.interop.late_frames.experiment import FAULTS, TRANSACTIONS_EACH, Run, rounds, run
from tests.interop.late_frames.summary import Summary, table
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess

BROKERS: dict[str, type[OncelogProcess] | type[KafkaProcess]] = {"oncelog": OncelogProcess, "kafka": KafkaProcess}

CLIENTS: Sequence[PhasedClient] = (*VERSION_2, *VERSION_1)


def main() -> int:
    options = _options()
    summaries = []
    for name in options.broker or BROKERS:
        with tempfile.TemporaryDirectory() as directory, BROKERS[name](Path(directory)) as broker:
            for client in CLIENTS:
                if options.client is None or client.name in options.client:
                    summaries.append(_summary(name, broker, client, options.seed, options.frames))
    print(table(summaries))
    return 0 if all(summary.is_as_expected for summary in summaries) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.late_frames",
        description="Late frames against version 1 and 2 of the transaction protocol.",
    )
    parser.add_argument("--seed", type=int, default=1, help="the first one; equal seeds give equal faults (default: 1)")
    parser.add_argument(
        "--frames",
        type=int,
        default=FAULTS,
        help=f"late frames of each client on each broker, with transactions to match (default: {FAULTS}); more than "
        f"{FAULTS} are played in runs of at most {FAULTS}, each with the next seed",
    )
    parser.add_argument("--broker", choices=BROKERS, action="append", help="may be repeated (default: both)")
    parser.add_argument(
        "--client", choices=[client.name for client in CLIENTS], action="append", help="may be repeated (default: all)"
    )
    return parser.parse_args()


def _summary(name: str, broker: BrokerProcess, client: PhasedClient, seed: int, frames: int) -> Summary:
    summary = Summary(name, client.name)
    for outcome in runs(broker, client, seed, frames):
        print_run(name, client.name, outcome)
        summary.add(outcome)
    return summary


def runs(broker: BrokerProcess, client: PhasedClient, seed: int, frames: int) -> Iterator[Run]:
    for each_seed, faults in rounds(seed, frames):
        topic = f"late-frames-{client.name}-{each_seed}"
        yield run(
            client, broker.address, topic, each_seed, each=-(-TRANSACTIONS_EACH * faults // FAULTS), faults=faults
        )


def print_run(broker: str, client: str, outcome: Run) -> None:
    transactions = sum(outcome.outcomes.values())
    print(f"{broker}, {client}, transaction protocol {outcome.protocol_version}, seed {outcome.seed}")
    print(f"  {transactions} transactions, {sum(outcome.faults.values())} late frames: {_spelled(outcome)}")
    print(f"  {outcome.late_frames} of these frames are Produce, AddPartitionsToTxn or EndTxn, which tear transactions")
    print("  " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in outcome.verdict.counts().items()))
    for name in outcome.verdict.counts():
        for found in getattr(outcome.verdict, name):
            print(f"    {name.replace('_', ' ')}: {found}")
    for (api, version, error), count in sorted(outcome.responses.items()):
        print(f"    {count:4} late {api.name} v{version} with the response {error}")
    sys.stdout.flush()


def _spelled(outcome: Run) -> str:
    return ", ".join(
        f"{count} {kind.value} {api.name}" for (kind, api), count in sorted(outcome.faults.items(), key=str)
    )


if __name__ == "__main__":
    sys.exit(main())
