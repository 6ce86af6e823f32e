"""Settings of reconcilers; imported when they are used for the first time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backoff:
    """Growing delays after failures: `first·factorⁿ` seconds, at most `most`, plus up to a share of `jitter`.

    `n` counts the delays that have fully elapsed, not the failures.

    Args:
        first: The first delay in seconds.
        factor: The factor from one delay to the next one.
        most: The longest delay in seconds, without `jitter`.
        jitter: The largest share of a delay that is added at random.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        for name in ("first", "factor", "most", "jitter"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}= must not be negative. Got {getattr(self, name)!r}.")


@dataclass(slots=True)
class ReconcilingSettings:
    """Reconcilers: the defaults of their options. Read once, after startup handlers."""

    concurrency: int = 32
    """The number of concurrent reconciliations per reconciler."""

    backoff: Backoff | float = field(default_factory=Backoff)
    """The delays after failures: a number of seconds, or a `kopf.Backoff`, the default."""

    debounce: float = 0
    """The seconds in which triggers by changes are merged."""

    resync: float | None = None
    """The seconds from a success to the next reconciliation; None: only on triggers."""

    reconcile_timeout: float | None = None
    """The timeout of one call in seconds; None: no timeout."""

    exit_timeout: float = 20
    """The seconds that a call has to end after its flag `stopped` is set; then it is cancelled."""

    pause_annotation: str = "kit.kopf.zalando.org/paused"
    """Objects with this annotation, and the value `true`, are not reconciled."""

    warn_after: float = 30
    """The seconds between warnings while reconcilers wait for kinds or permissions."""

    loop: int = 10
    """The number of reconciliations in a row, triggered by own writes only, that are a hot loop."""
