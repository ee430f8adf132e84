"""Which PySpark is needed: the code, the package and the documents say the same."""

import re
import tomllib

import pytest

from oncelog.spark_connector.spark_version import MINIMUM, UnsupportedSpark, require_spark
from tests.processes import REPOSITORY


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0.dev3", "4.3.0", "4.10.1", "5.0.0"])
def test_minimum_version_or_a_later_one_is_accepted(version: str) -> None:
    require_spark(version)


@pytest.mark.parametrize("version", ["3.5.5", "4.0.0", "4.1.2"])
def test_older_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(UnsupportedSpark, match=rf"needs PySpark 4\.2 or later; this is {re.escape(version)}"):
        require_spark(version)


def test_package_and_documents_name_the_minimum_version() -> None:
    needed = ".".join(map(str, MINIMUM))
    extra = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    assert f"pyspark>={needed},<5" in extra
    for document in ("README.md", "docs/tutorials/spark.md"):
        named = re.findall(r"PySpark (\d+\.\d+)\b", (REPOSITORY / document).read_text())
        assert set(named) == {needed}, document
