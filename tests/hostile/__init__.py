"""A bounded attack on a live broker, beside clients that only want to work: ``python -m tests.hostile``."""
