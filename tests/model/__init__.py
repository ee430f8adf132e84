"""Models of the protocols in TLA+, checked by TLC: ``make model``. See docs/internals/transaction-model.md."""
