"""The name of a stream's sink: given, or that of the query in its checkpoint.

The query's id is written into the checkpoint when the query is started first, and stays in it: the sink is the same one
however the location is spelt, and wherever the directory is moved.
"""

from dataclasses import replace

from oncelog.spark_connector.options import OptionsInvalid
from oncelog.spark_connector.sink.checkpoint import read_query_id
from oncelog.spark_connector.sink.commit.former_names import FormerNames
from oncelog.spark_connector.sink.write_options import Guarantee, WriteOptions, digest


def with_sink_name(options: WriteOptions) -> WriteOptions:
    """Return the same options, with a name for the sink. Raises ``OptionsInvalid``."""
    if options.sink is not None or options.guarantee is not Guarantee.EXACTLY_ONCE:
        return options
    query = read_query_id(options.checkpoint)
    if query is None:
        raise OptionsInvalid(
            [
                f"transactionalIdPrefix: is required, since the checkpoint ({options.checkpoint}) is not in a local "
                "directory that the driver's Python can read; it may be any name that no other query uses. A query "
                f"that has written with a former release goes on with {digest(options.checkpoint)}"
            ]
        )
    former = FormerNames(query=query, names=(digest(options.checkpoint),), was_named_by_location=True)
    return replace(options, sink=query, former=former)
