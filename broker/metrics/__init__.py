"""Figures of a running broker for whoever watches it, in Prometheus' text form (``docs/reference/metrics.md``).

Parts of the broker count in plain attributes, and know nothing of who reads them. When ``oncelog.http.listener`` is
set, ``monitor`` opens an endpoint with two pages, and each visit reads what it shows then. Without the setting nothing
of this is loaded, as the library alone would cost a broker a good part of its start.
"""
