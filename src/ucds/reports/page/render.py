"""Writes the facts of a report as one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from ucds.math.metrics import match_clusters, score
from ucds.reports import COLOURS, DARK_COLOURS
from ucds.reports.page.findings import Findings, RunRecord
from ucds.reports.page.thumbnails import COLUMNS
from ucds.reports.page.words import SURE, finish
from ucds.target.followed import Followed
from ucds.training.model_file import StoredModel

_TEMPLATE = Path(__file__).with_name("template")


def render(
    findings: Findings,
    record: RunRecord,
    stored: StoredModel,
    subtitle: str,
    summary: Sequence[str],
    warnings: Sequence[str],
    names: Mapping[int, str],
    followed: Sequence[Followed],
) -> str:
    """Write a report as HTML. The page needs nothing else, and its policy lets it load nothing else."""
    script = "\n".join(path.read_text(encoding="utf-8") for path in sorted(_TEMPLATE.glob("*.js")))
    style, page = ((_TEMPLATE / name).read_text(encoding="utf-8") for name in ("page.css", "page.html"))
    proportions = stored.proportions.mean(0).tolist()
    shares = (findings.sizes / max(findings.sizes.sum(), 1)).tolist()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(page).render(
        title=f"Clusters of {stored.card.name}",
        subtitle=subtitle,
        facts=findings,
        what="samples" if findings.sheets is None else "images",
        sure=_percent(findings.certainty),
        summary=summary,
        warnings=warnings,
        cards=_cards(findings),
        shares=list(zip(shares, proportions, strict=True)),
        tallest=max(*shares, *proportions, 1 / findings.n_clusters),
        choice=record.choice,
        transfer=record.transfer,
        followed=followed,
        confusion=_confusion(findings),
        zip=zip,
        finish=finish,
        data=_as_json(_data(findings, stored, names)),
        sheets=[base64.b64encode(file).decode() for file in findings.sheets or ()],
        style=style,
        script=script,
        policy=_policy(style, script),
    )


def _policy(style: str, script: str) -> str:
    """Write a content security policy that allows this style and this script and no request at all."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'"
    )


def _as_json(values: Mapping[str, Any]) -> Markup:
    """Write JSON that no name of a file can end: ``<`` begins no tag, as it is written as an escape."""
    return Markup(json.dumps(values, separators=(",", ":")).replace("<", "\\u003c"))


def _data(findings: Findings, stored: StoredModel, names: Mapping[int, str]) -> dict[str, Any]:
    n = np.arange(len(findings.ids))
    low, high = findings.points.min(0), findings.points.max(0)
    points = _grid(findings.points, low, high)
    truth, twins = findings.truth, findings.duplicates
    return {
        "run": stored.card.name,
        "model": stored.fingerprint,
        "names": {str(number): name for number, name in names.items()},
        "ids": findings.ids,
        "captions": findings.captions if findings.sheets is None else None,
        "cluster": findings.clusters.tolist(),
        "sure": _percent(findings.certainty),
        "rival": findings.rivals.tolist(),
        "rivalSure": _percent(findings.probabilities[n, findings.rivals]),
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
        "stars": _grid(findings.stars, low, high).tolist(),
        "answer": None if findings.answers is None else findings.answers.tolist(),
        "overruled": None if findings.answers is None else findings.overruled.astype(int).tolist(),
        "classes": truth and {"names": truth.names, "of": truth.classes.tolist()},
        "outliers": findings.outliers.tolist(),
        "twins": np.concatenate(twins).tolist() if twins else [],
        "sheets": len(findings.sheets or ()),
        "columns": COLUMNS,
        "header": findings.questions.header,
        "records": [list(question.records.values()) for question, _ in findings.questions.asked],
        "colours": {"light": COLOURS, "dark": DARK_COLOURS},
    }


def _grid(points: np.ndarray[Any, Any], low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> Any:
    """Bring points of the plane to 0..1000; prototypes far outside are drawn at the edge."""
    return np.clip(1000 * (points - low) / np.maximum(high - low, 1e-9), 0, 1000).round().astype(int)


def _percent(values: np.ndarray[Any, Any]) -> list[int]:
    return np.floor(100 * values + 1e-6).astype(int).tolist()  # type: ignore[no-any-return]


def _share(part: float, whole: float) -> str:
    return f"{part / max(whole, 1):.1%}"


def _cards(findings: Findings) -> list[dict[str, Any]]:
    cards = []
    for number, exemplars in enumerate(findings.exemplars):
        members = findings.clusters == number
        certainty, overruled = findings.certainty[members], None
        if findings.answers is not None:
            labelled = members & (findings.answers >= 0)
            overruled = _share(findings.overruled[labelled].sum(), labelled.sum())
        cards.append(
            {
                "number": number,
                "size": int(findings.sizes[number]),
                "share": _share(findings.sizes[number], findings.sizes.sum()),
                "sure": f"{certainty.mean():.0%}" if len(certainty) else "",
                "overruled": overruled,
                "exemplars": exemplars,
                "doubtful": [i for i in exemplars.doubtful.tolist() if findings.certainty[i] < SURE],
            }
        )
    return cards


def _confusion(findings: Findings) -> dict[str, Any] | None:
    """Return scores and counts of classes and clusters, clusters in the order of their classes."""
    truth, k = findings.truth, findings.n_clusters
    if truth is None:
        return None
    matching = match_clusters(findings.clusters, truth.classes)
    counts = np.zeros((truth.n_classes, k), dtype=int)
    np.add.at(counts, (truth.classes, findings.clusters), 1)
    columns = sorted(range(k), key=lambda number: (matching.get(number, truth.n_classes), number))
    largest = np.maximum(counts.sum(1, keepdims=True), 1)
    shares = np.ceil(100 * counts / largest).astype(int)
    return {
        "names": truth.names,
        "columns": columns,
        "rows": [
            (name, list(zip(counts[c, columns].tolist(), shares[c, columns].tolist(), strict=True)))
            for c, name in enumerate(truth.names)
        ],
        "scores": score(findings.clusters, truth.classes),
    }
