"""Administration: what operators ask a cluster, one noun a file, as functions from a ``Cluster`` to plain values."""
