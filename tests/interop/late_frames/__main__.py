"""Print both counts: ``python -m tests.interop.late_frames [--seed N] [--broker oncelog|kafka]``.

Ends with 1 if our broker or version 2 let anything through, or version 1 on Apache Kafka nothing: then the reproduction
of KAFKA-17754 has gone.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.interop.late_frames.client import VERSION_1, VERSION_2
from tests.interop.late_frames.experiment import Run, run
from tests.processes import BrokerProcess, KafkaProcess, OncelogProcess

BROKERS: dict[str, type[OncelogProcess] | type[KafkaProcess]] = {"oncelog": OncelogProcess, "kafka": KafkaProcess}


def main() -> int:
    parser = argparse.ArgumentParser(description="Late frames against version 1 and 2 of the transaction protocol.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", choices=BROKERS, action="append")
    options = parser.parse_args()
    as_expected = True
    for name in options.broker or BROKERS:
        with tempfile.TemporaryDirectory() as directory, BROKERS[name](Path(directory)) as broker:
            for client, outcome in runs(broker, options.seed):
                print_run(name, client, outcome)
                as_expected &= outcome.verdict.is_clean == (name == "oncelog" or outcome.protocol_version == 2)
    return 0 if as_expected else 1


def runs(broker: BrokerProcess, seed: int) -> Iterator[tuple[str, Run]]:
    for client in (*VERSION_2, *VERSION_1):
        yield client.name, run(client, broker.address, f"late-frames-{client.name}", seed)


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
