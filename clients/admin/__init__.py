"""Administration of a cluster: functions from a ``Cluster`` to plain values, one noun a file."""
