"""Private attributes that tests reach into."""

from pathlib import Path

from tests.house.reaching import reaching_places


def written(root: Path, text: str) -> Path:
    (root / "tests").mkdir()
    (root / "tests/test_it.py").write_text(text)
    return root


def test_reaching_places_private_attribute_of_another_object_is_counted_once_in_a_chain(tmp_path: Path) -> None:
    root = written(tmp_path, "made.inner._pool.first._links.size\nmade._pool\n")
    assert sorted(reaching_places(root)) == [
        "tests/test_it.py:1 made.inner._pool.first._links",
        "tests/test_it.py:2 made._pool",
    ]


def test_reaching_places_attribute_of_an_own_class_or_of_itself_is_not_counted(tmp_path: Path) -> None:
    own = "class Fake:\n    def __init__(self):\n        self._seen = []\n\n\nFake()._seen\nself._anything\n"
    assert not list(reaching_places(written(tmp_path, own)))


def test_reaching_places_name_of_another_library_is_not_counted(tmp_path: Path) -> None:
    assert not list(reaching_places(written(tmp_path, "os._exit\nrecord._replace\nmodule.__name__\n")))
