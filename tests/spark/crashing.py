"""``format("oncelog_crashing")``: the format ``oncelog``, with a crash at one point of the sink's protocol.

The options ``crash.point``, ``crash.action``, ``crash.done`` and ``crash.driver`` are those of ``Crash``.
"""

from typing import TYPE_CHECKING, Final

from oncelog.spark_connector.sink.sink_messages import columns_of
from oncelog.spark_connector.sink.sink_name import with_sink_name
from oncelog.spark_connector.sink.sink_session import SinkSession
from oncelog.spark_connector.sink.stream_writer import OncelogStreamWriter
from oncelog.spark_connector.sink.write_options import WriteOptions, stream_write_options
from oncelog.spark_connector.source import OncelogDataSource
from tests.spark.crashing_session import Crash, CrashingSession

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

_PREFIX: Final = "crash."


class CrashingStreamWriter(OncelogStreamWriter):
    """The writer, with that session."""

    def __init__(self, options: WriteOptions, crash: Crash) -> None:
        super().__init__(options)
        self._crash = crash

    def session(self) -> SinkSession:
        return CrashingSession(self._options, self._crash)


class CrashingDataSource(OncelogDataSource):
    """Takes its own options out, and leaves the rest to be checked as ever."""

    @classmethod
    def name(cls) -> str:
        return "oncelog_crashing"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        crash = Crash(**{name: str(self.options[_PREFIX + name]) for name in ("point", "action", "done", "driver")})
        options = {name: value for name, value in self.options.items() if not name.startswith(_PREFIX)}
        return CrashingStreamWriter(with_sink_name(stream_write_options(options, columns_of(schema))), crash)
