"""Producing: which partition a record goes to, and sending batches to their leaders."""
