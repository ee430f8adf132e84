"""Reading a checkpoint's directory."""

from pathlib import Path

import pytest

from spark_connector.checkpoint import local_path, read_offsets, sources_of

ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n{"end":{"orders":{"0":12}}}\n-'


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("a/b", "a/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("FILE:///a/b/", "/a/b"),
        ("/a/b:c", "/a/b:c"),
    ],
)
def test_a_local_checkpoint_is_found_however_it_is_spelt(location: str, path: str) -> None:
    assert local_path(location) == Path(path)


@pytest.mark.parametrize("location", ["hdfs://n/a", "s3a://bucket/a", "dbfs:/a"])
def test_a_checkpoint_elsewhere_is_not_a_local_one(location: str) -> None:
    assert local_path(location) is None
    assert read_offsets(location, 0) == ""


def test_the_same_batch_planned_later_has_the_same_offsets(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(ENTRY % 1)
    (tmp_path / "offsets" / "8").write_text(ENTRY % 2)
    assert read_offsets(str(tmp_path), 7) == read_offsets(f"file://{tmp_path}/", 8) == '{"end":{"orders":{"0":12}}} -'
    assert read_offsets(str(tmp_path), 9) == ""


def test_many_offsets_become_a_digest() -> None:
    many = ENTRY % 1 + "\n" + "x" * 5000
    assert len(sources_of(many)) < 100
    assert sources_of(many) != sources_of(many + "x")
