"""The summary and the warnings of a report, in words."""

from __future__ import annotations

from ucds.math.metrics import clustering_accuracy
from ucds.page.findings import Findings, RunRecord
from ucds.training.results import SAMPLES_TO_TELL, assess

SURE, DOUBTFUL = 0.9, 0.5
"""Confidence from which the model is called sure about a sample, and below which it is called doubtful."""

MUCH_DOUBT = 0.25
"""Share of doubtful samples from which the report warns that the clusters as a whole are in doubt."""


def summarise(findings: Findings, record: RunRecord, what: str) -> list[str]:
    """Write what was found about ``what``, "images" or "samples", as sentences that can be read alone."""
    total, filled = findings.total, findings.sizes[findings.sizes > 0]
    sure, doubtful = (findings.certainty >= SURE), (findings.certainty < DOUBTFUL)
    lines = [
        f"{total:,} {what} in {len(filled)} clusters. "
        f"The largest has {filled.max(initial=0):,}, the smallest {filled.min(initial=total):,}."
        if len(filled)
        else f"None of the {total:,} {what} is in a cluster.",
        f"The model is sure (at least {SURE:.0%}) about {sure.mean():.0%} of the {what}, "
        f"and doubtful (below {DOUBTFUL:.0%}) about {doubtful.mean():.0%}.",
    ]
    lines += [finish(str(line)) for line in (record.described.get("update") or {}).get("sentences") or ()]
    if outside := int((findings.clusters < 0).sum()):
        lines.append(f"{outside:,} of the {what} shown are in no cluster: they fit none, or were set aside.")
    if record.choice is not None and record.choice.clear:
        tried = record.choice.candidates
        lines.append(
            f"The number of clusters, {record.choice.number}, was chosen from {tried[0]} to {tried[-1]}; "
            f"{record.choice.plausible}."
        )
    if record.stability is not None:
        agreement = float(record.stability["own_agreement"])
        lines.append(f"Repeated clusterings agree to {agreement:.2f} of 1, where 0 is chance.")
        if "second_opinion" in record.stability:
            lines.append(finish(str(record.stability["second_opinion"]["sentence"])))
    if findings.answers is not None:
        known = findings.answers >= 0
        lines.append(
            f"{int(known.sum()):,} {what} have a label of the provider. "
            f"{findings.overruled[known].mean():.0%} of these labels were overruled: their {what} lie in "
            f"another cluster than most {what} with the same label."
        )
        if record.transfer is not None:
            lines.append(finish(str(record.transfer["sentence"])))
    if findings.outlook:
        lines.append(finish(findings.outlook))
    if len(findings.outliers):
        count = len(findings.outliers)
        lines.append(f"{count:,} {_of(what, count)} {_are(count)} unlike all others.")
    if findings.duplicates:
        sets, count = len(findings.duplicates), sum(map(len, findings.duplicates))
        lines.append(f"{count:,} {what} are nearly the same as another one ({sets:,} {_of('sets', sets)}).")
    if findings.truth is not None:
        kept = findings.clusters >= 0
        accuracy = clustering_accuracy(findings.clusters[kept], findings.truth.classes[kept])
        lines.append(
            f"Compared with the {findings.truth.n_classes} folders that the {what} lie in, "
            f"{accuracy:.1%} are in the cluster that matches their folder."
        )
    return lines


def warn(findings: Findings, record: RunRecord, what: str, learned: int, skipped: int) -> list[str]:
    """List what a reader should know first; clusters of ``learned`` samples, ``skipped`` files not used."""
    shown, total, k = len(findings.ids), findings.total, findings.n_clusters
    if revised := bool(record.described.get("reviewed")):  # numbers without samples were given up on purpose
        k = int((findings.sizes > 0).sum())
    warnings = [assess(findings.probabilities).warning] if shown == total and not revised else []
    doubtful = float((findings.certainty < DOUBTFUL).mean())
    if doubtful >= MUCH_DOUBT:
        warnings.append(
            f"The model is doubtful about {doubtful:.0%} of the {what}: the clusters may not be real groups. "
            "Another number of clusters, or a better encoder, may help."
        )
    stability = record.stability or {}
    if stability.get("doubtful") or stability.get("overconfident"):
        advice = (
            "the clusters may be due to chance. Fewer clusters, or another encoder, may help."
            if stability.get("doubtful")
            else f"fewer {what} are in the right cluster than the confidence says. Look at the clusters "
            "before you rely on it."
        )
        warnings.append(
            f"Repeated clusterings of the {what} agree to only "
            f"{stability['own_agreement']:.2f} of 1: {advice}"
        )
    if record.choice is not None and not record.choice.clear and not revised:
        number, plausible = record.choice.number, record.choice.plausible
        warnings.append(
            f"No number of clusters stands out: {plausible}, and the run has {number}. "
            "Join clusters in `ucds review`, or try another encoder."
        )
    if learned < SAMPLES_TO_TELL * k:
        warnings.append(
            f"{learned:,} {what} are few for {k} clusters: with fewer than {SAMPLES_TO_TELL} for each, "
            "a cluster can be due to chance."
        )
    if skipped:
        warnings.append(
            f"{skipped:,} {_of('files', skipped)} could not be used and {_are(skipped)} left out."
        )
    if shown < total:
        warnings.append(f"This page shows {shown:,} of the {total:,} {what}, chosen at random.")
    return [finish(text) for text in warnings if text]


def finish(sentence: str) -> str:
    """Begin a sentence with a capital letter, and end it with a full stop."""
    return sentence[:1].upper() + sentence[1:].rstrip(".") + "."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _of(plural: str, count: int) -> str:
    return plural.removesuffix("s") if count == 1 else plural
