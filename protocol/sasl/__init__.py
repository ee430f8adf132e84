"""SASL as both ends of a connection know it: login modules, the PLAIN message, SCRAM's messages and keys."""
