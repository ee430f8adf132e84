"""Client quotas: their limits, what each client has used of them, and how long a client over its quota waits."""
