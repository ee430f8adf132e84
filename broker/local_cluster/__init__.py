"""Several broker processes and a ZooKeeper server on one machine, for development and experiments."""
