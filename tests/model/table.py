"""Every configuration of the transaction model, with what TLC must find."""

from typing import Final

from tests.model.configurations import LIVENESS, Bounds, Configuration

_NO_CHALLENGE: Final = ("challenge",)
_EPOCH_KEPT: Final = ("epoch after unknown",)
"""Clients that begin the next transaction in the same epoch after they gave a batch up, as kafkajs does."""

SAFE: Final = (
    Configuration("v1-late-frames", 1, Bounds(late=2), least_states=154_000),
    Configuration("v1-three-transactions", 1, Bounds(transactions=3), least_states=78_000),
    Configuration("v1-failovers", 1, Bounds(failovers=2), least_states=336_000),
    Configuration("v1-late-markers", 1, Bounds(markers=1, failovers=1), least_states=382_000),
    Configuration("v1-time-out", 1, Bounds(markers=1, time_outs=1), least_states=171_000),
    Configuration("v1-two-processes", 1, Bounds(), processes=2, least_states=94_000),
    Configuration("v1-pipelined-frames", 1, Bounds(late=2), offsets=False, pipelines=True, least_states=195_000),
    Configuration("v1-batches-given-up", 1, Bounds(late=2), without=_EPOCH_KEPT, least_states=154_000),
    Configuration("v2-late-frames", 2, Bounds(late=2, failovers=1), least_states=230_000),
    Configuration("v2-late-markers", 2, Bounds(markers=2, failovers=1), least_states=341_000),
    Configuration("v2-time-out", 2, Bounds(markers=1, time_outs=1), least_states=47_000),
    Configuration("v2-two-processes", 2, Bounds(), processes=2, least_states=29_000),
    Configuration("v1-2x2x2", 1, Bounds(failovers=1), processes=2, least_states=1_231_000),
    Configuration("v2-2x2x2", 2, Bounds(failovers=1), processes=2, least_states=328_000),
    Configuration("v1-two-late-markers", 1, Bounds(markers=2, failovers=1), least_states=1_050_000, deep=True),
)

UNSAFE: Final = (
    Configuration("v1-late-end-tears", 1, Bounds(), "Atomicity", _NO_CHALLENGE, offsets=False),
    Configuration("v1-late-end-aborts", 1, Bounds(), "AcknowledgedCommitIsVisible", _NO_CHALLENGE, offsets=False),
    Configuration("v1-late-end-commits", 1, Bounds(), "AbortedIsInvisible", _NO_CHALLENGE, offsets=False),
    Configuration("v1-late-end-decides", 1, Bounds(), "OwnOutcome", _NO_CHALLENGE, offsets=False),
    Configuration("v1-late-add", 1, Bounds(), "NoTransactionReopens", _NO_CHALLENGE, offsets=False),
    Configuration("v1-late-offsets", 1, Bounds(transactions=3), "OwnOutcome", ("owner forgotten at abort",)),
    Configuration("v1-slow-verification", 1, Bounds(), "AbortedIsInvisible", ("owner at append",)),
    Configuration("v1-late-marker", 1, Bounds(late=0, markers=1), "Atomicity", ("marker identity",)),
    Configuration("v1-owner-remembered", 1, Bounds(failovers=2), "OwnOutcome", ("owner forgotten",)),
    Configuration("v1-challenges-kept", 1, Bounds(late=2), "OwnOutcome", ("one challenge",)),
    Configuration(
        "v1-unflushed-repetition", 1, Bounds(late=2), "OwnOutcome", ("flushed response",), offsets=False, pipelines=True
    ),
    Configuration("v1-frames-apart", 1, Bounds(late=2), "OwnOutcome", offsets=False, pipelines=True, frames_apart=True),
    Configuration("v1-epoch-kept", 1, Bounds(), "OwnOutcome", (*_EPOCH_KEPT, "batch challenge"), offsets=False),
    Configuration(
        "v1-given-up-by-owner",
        1,
        Bounds(transactions=3),
        "OwnOutcome",
        (*_EPOCH_KEPT, "owner forgotten at abort"),
        offsets=False,
    ),
    Configuration(
        "v1-number-used-again",
        1,
        Bounds(),
        "AcknowledgedCommitIsVisible",
        (*_EPOCH_KEPT, "own duplicate"),
        offsets=False,
    ),
    Configuration(
        "v1-unverified", 1, Bounds(), "NoHangingTransaction", ("verification", "batch challenge"), offsets=False
    ),
    Configuration("v1-no-guard", 1, Bounds(), "NoHangingTransaction", ("guard", "batch challenge"), offsets=False),
    Configuration("v1-no-sequence", 1, Bounds(), "NoDuplicate", ("sequence",), offsets=False),
    Configuration(
        "v1-old-coordinator",
        1,
        Bounds(late=0, markers=1, failovers=1),
        "Atomicity",
        ("marker identity", "coordinator epoch"),
    ),
    Configuration(
        "v1-fence-without-epoch", 1, Bounds(late=0, time_outs=1), "AcknowledgedCommitIsVisible", ("epoch at fence",)
    ),
    Configuration(
        "v1-marker-before-prepare", 1, Bounds(late=0, failovers=1, time_outs=1), "Atomicity", ("prepare first",)
    ),
    Configuration("v1-challenged-for-ever", 1, Bounds(), LIVENESS, ("challenge remembered",)),
    Configuration("v2-epoch-kept", 2, Bounds(), "Atomicity", ("epoch at end", "marker epoch"), offsets=False),
    Configuration("v2-stale-marker", 2, Bounds(late=0, markers=1), "Atomicity", ("marker epoch",), offsets=False),
    Configuration("v2-no-sequence", 2, Bounds(), "NoDuplicate", ("sequence",), offsets=False),
)

LIVE: Final = (
    Configuration("v1-clients-get-through", 1, Bounds(failovers=1), None, least_states=75_000, live=True),
    Configuration("v2-clients-get-through", 2, Bounds(failovers=1), None, least_states=23_000, live=True),
)

ALL: Final = UNSAFE + SAFE + LIVE
