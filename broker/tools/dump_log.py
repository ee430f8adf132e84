"""``oncelog dump-log FILE…``: what is in the files of a data directory, whether Oncelog or Apache Kafka wrote them.

The files may belong to a running broker: they are opened for reading only, so beside the broker's own disk seam, and a
batch that is just being written shows up as invalid bytes at the end. Exit code 1 says that something is wrong with a
file; what it is stands among the lines.
"""

from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

import click

from oncelog.broker.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)
from oncelog.broker.storage.leader_epoch_cache import FILE_NAME as EPOCH_CHECKPOINT
from oncelog.broker.storage.log_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of,
)
from oncelog.broker.storage.meta_properties import FILE_NAME as META_PROPERTIES
from oncelog.broker.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from oncelog.broker.tools.index_text import (
    dump_epochs,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from oncelog.broker.tools.internal_records import (
    RecordDecoder,
    decode_consumer_offsets,
    decode_text,
    decode_transaction_log,
)
from oncelog.broker.tools.segment_text import Complaint, Lines, dump_segment
from oncelog.protocol.printable import one_line
from oncelog.protocol.records.record_batch import HEADER_SIZE, CorruptRecord, read_header

_CORRUPT: Final = 1
_SHOWN_PARTITIONS: Final = 10
_TEXTS: Final = frozenset(
    {
        PARTITION_METADATA,
        META_PROPERTIES,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_CHECKPOINT,
        LOG_START_CHECKPOINT,
        CLEANER_CHECKPOINT,
    }
)


@click.command(
    "dump-log",
    short_help="Print the files of a data directory.",
    epilog="\b\nExample:\n"
    "  oncelog dump-log --print-data-log data/orders-0\n"
    "  oncelog dump-log --print-data-log data/orders-0/*.log data/orders-0/*.index\n"
    "  oncelog dump-log --transaction-log-decoder data/__transaction_state-*/*.log",
)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE|DIRECTORY…"
)
@click.option("--print-data-log", is_flag=True, help="Include the records of .log files, as text.")
@click.option("--transaction-log-decoder", is_flag=True, help="Show records as those of __transaction_state.")
@click.option("--offsets-decoder", is_flag=True, help="Show records as those of __consumer_offsets.")
def command(
    files: tuple[Path, ...], print_data_log: bool, transaction_log_decoder: bool, offsets_decoder: bool
) -> None:
    """Print what is in .log, .index, .timeindex, .txnindex, .snapshot and leader-epoch-checkpoint files.

    The directory of a partition stands for its .log files, in the order of their offsets.
    """
    if transaction_log_decoder and offsets_decoder:
        raise click.UsageError("--transaction-log-decoder and --offsets-decoder exclude each other")
    decode: RecordDecoder | None = decode_text if print_data_log else None
    if transaction_log_decoder:
        decode = decode_transaction_log
    elif offsets_decoder:
        decode = decode_consumer_offsets
    complaints = 0
    for path in chain.from_iterable([_segments(each) for each in files]):
        click.echo(f"Dumping {one_line(str(path))}")
        for line in dump_file(path, decode):
            click.echo(one_line(line))
            complaints += isinstance(line, Complaint)
    if complaints:
        raise click.exceptions.Exit(_CORRUPT)


def _segments(path: Path) -> list[Path]:
    """Return a file itself, and for a partition's directory its segments. Raises ``click.UsageError`` for others."""
    if not path.is_dir():
        return [path]
    if segments := _segments_in(path):
        return segments
    names = [each.name for each in path.iterdir() if each.is_dir() and _segments_in(each)]
    partitions = sorted(names, key=lambda name: (name.startswith("__"), name))  # Internal topics come last.
    if not partitions:
        raise click.UsageError(f"{path} has no segments (*{LOG_SUFFIX}): name the directory of a partition, or files")
    shown = ", ".join(partitions[:_SHOWN_PARTITIONS]) + (", …" if len(partitions) > _SHOWN_PARTITIONS else "")
    raise click.UsageError(f"{path} is not the directory of a partition; name one of those in it, or files: {shown}")


def _segments_in(directory: Path) -> list[Path]:
    """Return the .log files of a directory in the order of their offsets."""
    found = [(offset_of(each.name), each) for each in directory.glob(f"*{LOG_SUFFIX}")]
    return [each for _, each in sorted((offset, each) for offset, each in found if offset is not None)]


def dump_file(path: Path, decode: RecordDecoder | None) -> Lines:
    """Yield the lines of one file."""
    if path.name == EPOCH_CHECKPOINT:
        return dump_epochs(path.name, path.read_bytes())
    if path.name in _TEXTS:
        return iter(path.read_text(errors="backslashreplace").splitlines())
    base_offset = offset_of(path.name)
    if base_offset is None:
        return iter([Complaint(f"{path.name} is not named as a file of a log is")])
    if path.suffix == LOG_SUFFIX:
        return _dump_segment(path, base_offset, decode)
    if path.suffix == OFFSET_INDEX_SUFFIX:
        return _dump_offset_index(path, base_offset)
    if path.suffix == TIME_INDEX_SUFFIX:
        return dump_time_index(path.name, path.read_bytes(), base_offset)
    if path.suffix == TRANSACTION_INDEX_SUFFIX:
        return dump_transaction_index(path.name, path.read_bytes())
    if path.suffix == SNAPSHOT_SUFFIX:
        return dump_snapshot(path.name, path.read_bytes())
    return iter([Complaint(f"{path.name}: files that end in {path.suffix or 'nothing'} are not known")])


def _dump_segment(path: Path, base_offset: int, decode: RecordDecoder | None) -> Lines:
    yield f"Log starting offset: {base_offset}"
    with path.open("rb") as file:
        yield from dump_segment(file, path.name, path.stat().st_size, decode)


def _dump_offset_index(path: Path, base_offset: int) -> Lines:
    """Yield the lines of an ``.index``, compared with the segment if that is beside it."""
    segment = path.with_suffix(LOG_SUFFIX)
    if not segment.exists():
        yield from dump_offset_index(path.name, path.read_bytes(), base_offset, None)
        return
    with segment.open("rb") as file:
        look_up = partial(_last_offset_at, file)
        yield from dump_offset_index(path.name, path.read_bytes(), base_offset, look_up)


def _last_offset_at(segment: BinaryIO, position: int) -> int | None:
    segment.seek(position)
    try:
        return read_header(segment.read(HEADER_SIZE)).last_offset
    except CorruptRecord:
        return None
