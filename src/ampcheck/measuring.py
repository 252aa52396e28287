"""Doubts in the measuring itself: what disturbed it, and clocks that do not agree. Loads no torch."""

from collections.abc import Iterator

from ampcheck.evidence import Evidence

CLOCKS_AGREE = 0.02


def of_measuring(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each doubt."""
    yield from _disturbed(evidence)
    yield from _unchecked(evidence)
    yield from _clocks(evidence)


def _disturbed(evidence: Evidence) -> Iterator[str]:
    """Of trials that were disturbed in their second try as well."""
    for trial in evidence.trials.reset_index().to_dict("records"):
        if causes := trial["conditions"].get("disturbed"):
            yield f"{trial['mode']}, repeat {trial['repeat']}: disturbed in both tries: {'; '.join(causes)}."


def _unchecked(evidence: Evidence) -> Iterator[str]:
    """Of ceilings whose measurement was disturbed."""
    for mode, found in evidence.ceilings.items():
        if found["disturbed"]:
            yield (
                f"{mode}: its ceilings were measured while disturbed ({'; '.join(found['disturbed'])}): no timing was "
                "checked against them, and the gap is a guess."
            )


def _clocks(evidence: Evidence) -> Iterator[str]:
    """The steps are timed by the device, the total by the host: on CUDA the clocks are two."""
    sums = evidence.steps.groupby(["mode", "repeat"])["seconds"].sum()
    ratios = (sums / evidence.trials["total_seconds"].reindex(sums.index)).dropna().rename("ratio")
    for trial in ratios[(ratios - 1).abs() > CLOCKS_AGREE].reset_index().to_dict("records"):
        share = f"{trial['ratio'] * 100:.1f} % of its total"
        yield f"{trial['mode']}, repeat {trial['repeat']}: its steps add up to {share}: the clocks do not agree."
