"""TLS as both ends of a connection know it: files of keys and certificates, and names of versions and suites."""
