"""The proof that tests hold their invariants: each safeguard is taken away in a copy, and its test must fail then."""
