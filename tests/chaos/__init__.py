"""Clients under connections that break in every way, from a seed: ``make client-chaos``."""
