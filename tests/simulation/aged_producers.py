"""Producers whose epochs have nearly run out, made by writing to the transaction log of a broker that is down.

An epoch grows by one with every session and, in transaction version 2, with every transaction, so it takes a simulated
producer too long to get to 32,766. What is appended here is the record that the log has of it already, with a later
epoch: what years of transactions would have left.
"""

import random
import struct
from collections.abc import Iterable

from oncelog.protocol.compiler import decode, encode
from oncelog.protocol.internal.placement import partition_for
from oncelog.protocol.internal.transaction_log import TransactionLogKey, TransactionLogValue
from oncelog.protocol.records.record_batch import (
    NewRecord,
    build_batch,
    iter_batches,
    iter_records,
    patch_offset_and_epoch,
)
from tests.simulation import requests
from tests.simulation.patient_client import PatientClient, error_of
from tests.simulation.routes import OneBroker
from tests.simulation.simulated_broker import PORT, SMALL, SimulatedBroker

_VERSION = struct.Struct(">h")


async def age_producers(
    broker: SimulatedBroker,
    transactional_ids: Iterable[str],
    rng: random.Random,
    *,
    epochs: tuple[int, int] = (32_755, 32_766),
) -> None:
    """Initialise producers, take the broker down, and bring it up again with their epochs between these."""
    names = list(transactional_ids)
    client = PatientClient(OneBroker(PORT), rng)
    for name in names:
        find = requests.find_coordinator(name, transactional=True)
        await client.succeed(find, requests.FIND_COORDINATOR_VERSION, error_of)
        await client.succeed(requests.init_producer_id(name), requests.INIT_PRODUCER_ID_VERSION, error_of)
    await client.disconnect()
    broker.crash("process")
    for name in names:
        _age(broker, name, rng.randint(*epochs))
    await broker.start()


def _age(broker: SimulatedBroker, transactional_id: str, epoch: int) -> None:
    index = partition_for(transactional_id, int(SMALL["transaction.state.log.num.partitions"]))
    directory = f"/data/__transaction_state-{index}"
    segments = sorted(name for name in broker.disk.list_dir(directory) if name.endswith(".log"))
    path = f"{directory}/{segments[-1]}"
    log = b"".join(broker.disk.read(f"{directory}/{name}") for name in segments)
    headers = list(iter_batches(log))
    values = [
        record.value
        for position, header in headers
        for record in iter_records(log, position, header, max_decompressed_bytes=1 << 20)
        if record.key == _key(transactional_id)
    ]
    assert values, f"{path} knows nothing of {transactional_id}"
    value = values[-1]
    assert value is not None
    last = headers[-1][1]
    batch = build_batch([NewRecord(last.max_timestamp, _key(transactional_id), _with_epoch(value, epoch))])
    patch_offset_and_epoch(batch, 0, last.next_offset, last.partition_leader_epoch)
    file = broker.disk.open(path)
    file.append([batch])
    file.sync()
    file.close()


def _key(transactional_id: str) -> bytes:
    return _VERSION.pack(0) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def _with_epoch(value: bytes, epoch: int) -> bytes:
    (version,) = _VERSION.unpack_from(value)
    known = decode(TransactionLogValue, version, value[_VERSION.size :])
    known.producer_epoch = epoch
    return _VERSION.pack(version) + encode(known, version)
