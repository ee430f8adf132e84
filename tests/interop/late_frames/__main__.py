"""Print both counts: ``python -m tests.interop.late_frames [--seed N] [--frames N] [--broker NAME] [--client NAME]``.

Ends with 1 if our broker or version 2 let anything through, or version 1 on Apache Kafka nothing: then the reproduction
of KAFKA-17754 has gone.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.interop.late_frames.aiokafka_client import PhasedAioKafka
from tests.interop.late_frames.client import VERSION_1, VERSION_2, PhasedClient
from tests.interop.late_frames.confluent_client import PhasedConfluent
from tests.interop.late_frames.experiment import FAULTS, TRANSACTIONS_EACH, Run, run
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess

BROKERS: dict[str, type[OncelogProcess] | type[KafkaProcess]] = {"oncelog": OncelogProcess, "kafka": KafkaProcess}

CLIENTS: Sequence[PhasedClient] = (*VERSION_2, *VERSION_1, PhasedConfluent(), PhasedAioKafka())


def main() -> int:
    parser = argparse.ArgumentParser(description="Late frames against version 1 and 2 of the transaction protocol.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--frames", type=int, default=FAULTS, help="late frames for each client, with transactions to match"
    )
    parser.add_argument("--broker", choices=BROKERS, action="append")
    parser.add_argument("--client", choices=[client.name for client in CLIENTS], action="append")
    options = parser.parse_args()
    as_expected = True
    for name in options.broker or BROKERS:
        with tempfile.TemporaryDirectory() as directory, BROKERS[name](Path(directory)) as broker:
            for client, outcome in runs(broker, options.seed, options.frames, options.client):
                print_run(name, client, outcome)
                as_expected &= outcome.verdict.is_clean == (name == "oncelog" or outcome.protocol_version == 2)
    return 0 if as_expected else 1


def runs(broker: BrokerProcess, seed: int, frames: int, names: Sequence[str] | None) -> Iterator[tuple[str, Run]]:
    each = TRANSACTIONS_EACH * frames // FAULTS
    for client in CLIENTS:
        if names is None or client.name in names:
            yield client.name, run(client, broker.address, f"late-frames-{client.name}", seed, each=each, faults=frames)


def print_run(broker: str, client: str, outcome: Run) -> None:
    transactions = sum(outcome.outcomes.values())
    print(f"{broker}, {client}, transaction protocol {outcome.protocol_version}, seed {outcome.seed}")
    print(f"  {transactions} transactions, {sum(outcome.faults.values())} late frames: {_spelled(outcome)}")
    print(f"  {outcome.late_frames} of Produce, AddPartitionsToTxn and EndTxn")
    print("  " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in outcome.verdict.counts().items()))
    for (api, version, error), count in sorted(outcome.responses.items()):
        print(f"    {count:4} late {api.name} v{version} answered {error}")
    sys.stdout.flush()


def _spelled(outcome: Run) -> str:
    return ", ".join(
        f"{count} {kind.value} {api.name}" for (kind, api), count in sorted(outcome.faults.items(), key=str)
    )


if __name__ == "__main__":
    sys.exit(main())
