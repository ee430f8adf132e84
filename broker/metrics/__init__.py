"""Metrics of a running broker, in Prometheus' text form (``docs/reference/metrics.md``).

Parts of the broker count in plain attributes, and do not depend on the monitor. When ``oncelog.http.listener`` is
set, ``monitor`` opens an endpoint with two pages, and each visit reads what it shows then. Without the setting nothing
of this is loaded, as the library alone would cost a broker a good part of its start.
"""
