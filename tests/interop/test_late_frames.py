"""B01 and its like: frames that come too late, by the hundred, against every version of the transaction protocol."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.broker_under_test import TRANSACTION_VERSION, needs_one_broker
from tests.interop.drivers.oncelog_client import OncelogClient
from tests.interop.late_frames.client import PhasedClient
from tests.interop.late_frames.clients import VERSION_1, VERSION_2
from tests.interop.late_frames.experiment import run
from tests.processes import BrokerProcess, OncelogProcess

Name = Callable[[str], str]
SEED = 1
pytestmark = needs_one_broker("equal seeds give equal runs only where one broker orders all frames")


@pytest.mark.skipif(TRANSACTION_VERSION < 2, reason="this broker does not offer version 2")
@pytest.mark.parametrize("client", VERSION_2, ids=lambda client: client.name)
def test_version_2_keeps_every_transaction_whole(client: PhasedClient, broker: BrokerProcess, name: Name) -> None:
    outcome = run(client, broker.address, name("topic"), SEED)
    assert outcome.protocol_version == 2
    assert outcome.late_frames >= 1_000
    assert outcome.verdict.is_clean, outcome


@pytest.mark.parametrize("client", VERSION_1, ids=lambda client: client.name)
def test_version_1_keeps_every_transaction_whole(client: PhasedClient, broker: BrokerProcess, name: Name) -> None:
    """B107, B108: a late request comes over another connection than its client's last one (KAFKA-17754)."""
    outcome = run(client, broker.address, name("topic"), SEED)
    assert outcome.protocol_version == 1
    assert outcome.late_frames >= 1_000
    assert outcome.verdict.is_clean, outcome


def test_version_1_without_the_challenge_is_torn_in_the_same_way_every_time(tmp_path: Path) -> None:
    """KAFKA-17754: then an EndTxn that comes late ends the next transaction of its producer."""
    (client,) = (client for client in VERSION_1 if isinstance(client, OncelogClient))
    with OncelogProcess(tmp_path, ["oncelog.transaction.connection.challenge.enable=false"]) as broker:
        first, again = (run(client, broker.address, f"late-{turn}", SEED, each=40) for turn in range(2))
    assert first.verdict.aborted_but_visible, first
    assert first.verdict.counts() == again.verdict.counts()
