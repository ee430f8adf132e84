"""Where records end, however the stream is cut."""

from random import Random

import pytest

from oncelog.broker.tls.record_count import RecordCount


@pytest.mark.parametrize("seed", range(20))
def test_whole_records_are_counted_in_any_pieces(seed: int) -> None:
    rng = Random(seed)
    sizes = [rng.choice([0, 1, 5, 100, 16_640]) for _ in range(30)]
    stream = b"".join(bytes([23, 3, 3]) + size.to_bytes(2, "big") + bytes(size) for size in sizes)
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + 5 + size)
    records = RecordCount()
    position = 0
    while position < len(stream):
        size = rng.choice([1, 2, 4, 5, 6, 50, 20_000])
        records.feed(memoryview(stream)[position : position + size])
        position = min(position + size, len(stream))
        assert records.arrived == position
        assert records.whole == max(end for end in ends if end <= position)
