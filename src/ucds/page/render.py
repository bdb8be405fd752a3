"""Writes the page in one of two forms: a file that holds everything, or a shell that asks a server.

Both have the same template, style and script. The script's modules stand in the page one after another.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup, escape

from ucds.math.metrics import match_clusters, score
from ucds.page.words import finish
from ucds.reports import COLOURS, DARK_COLOURS

if TYPE_CHECKING:
    from ucds.page.report import Facts

TEMPLATE = Path(__file__).with_name("template")
KEPT = TEMPLATE / "kept"


def render_page(
    title: str, written: Mapping[str, Any] | None = None, about: str = "", sheets: Sequence[bytes] = ()
) -> str:
    """Write the page as HTML, which loads nothing; without ``written``, it loads from its own server."""
    kept, script = _kept_script(), _own_script()
    style, page = ((TEMPLATE / name).read_text(encoding="utf-8") for name in ("page.css", "page.html"))
    return _template(page).render(
        title=title,
        policy=_policy(style, (kept, script), is_live=written is None),
        style=style,
        kept=kept,
        script=script,
        about=Markup(about),
        data=_as_json(written or {}),
        sheets=[base64.b64encode(file).decode() for file in sheets],
    )


def render_about(facts: Facts, rows: Sequence[int]) -> str:
    """Write what is known of a run as HTML, where sample ``i`` has row ``rows[i]`` of the page, or -1."""
    findings = facts.findings
    shares = (findings.sizes / max(findings.sizes.sum(), 1)).tolist()
    proportions = facts.stored.proportions.mean(0).tolist()
    return _template((TEMPLATE / "about.html").read_text(encoding="utf-8")).render(
        facts=findings,
        rows=rows,
        what=facts.what,
        sure=percent(findings.certainty),
        summary=facts.summary,
        warnings=facts.warnings,
        subtitle=facts.subtitle,
        shares=list(zip(shares, proportions, strict=True)),
        tallest=max(*shares, *proportions, 1 / findings.n_clusters),
        choice=facts.record.choice,
        transfer=facts.record.transfer,
        followed=facts.followed,
        confusion=_confusion(facts),
        zip=zip,
        finish=finish,
    )


def write_down(facts: Facts) -> dict[str, Any]:
    """Return what a file holds of the samples and their clusters, under the names that the server uses."""
    findings, total = facts.findings, facts.findings.total
    n, shown = np.arange(len(findings.ids)), len(findings.ids)
    rivals, twins = findings.rivals, findings.duplicates
    fixed = {
        "title": f"Clusters of {facts.stored.card.name}",
        "run": facts.stored.card.name,
        "what": facts.what.removesuffix("s"),
        "ids": findings.ids,
        "texts": findings.captions if findings.captions != findings.ids else None,
        "pictures": "" if findings.thumbnails is None else "sheets",
        "missing": [],
        "labels": None if findings.answers is None else findings.answers.tolist(),
        "outliers": findings.outliers.tolist(),
        "twins": np.concatenate(twins).tolist() if twins else [],
        "near": findings.neighbours.tolist(),
        **places_of(findings.points),
        **describe_part(shown, total, facts.what),
    }
    now = {
        "number": 0,
        "answered": 0,
        "names": {str(number): name for number, name in facts.names.items()},
        "clusters": findings.clusters.tolist(),
        "sure": percent(findings.certainty),
        "second": np.where(findings.probabilities[n, rivals] > 0, rivals, -1).tolist(),
        "typical": percent(10 * np.maximum(findings.typicality, 0)),
    }
    return {"fixed": fixed, "now": now}


def describe_part(shown: int, total: int, what: str) -> dict[str, Any]:
    """Return what both forms say of samples that are not shown, and the colours of the clusters."""
    note = f"Shown: {shown:,} {what}."
    if shown < total:
        note = f"Shown: {shown:,} of {total:,} {what}, drawn at random."
    return {"note": note, "left_out": total - shown, "colours": {"light": COLOURS, "dark": DARK_COLOURS}}


def places_of(points: np.ndarray[Any, Any]) -> dict[str, list[int]]:
    """Scale points of the plane to whole numbers from 0 to 1000."""
    low, high = points.min(0), points.max(0)
    x, y = (1000 * (points - low) / np.maximum(high - low, 1e-9)).round().astype(int).T.tolist()
    return {"x": x, "y": y}


def percent(values: np.ndarray[Any, Any]) -> list[int]:
    """Return shares in percent, rounded down."""
    return np.floor(100 * values + 1e-6).astype(int).tolist()  # type: ignore[no-any-return]


def _template(text: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["code"] = _mark_code
    return environment.from_string(text)


def _mark_code(text: str) -> Markup:
    """Write a sentence as HTML, in which what stands in backquotes is code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _policy(style: str, scripts: Sequence[str], *, is_live: bool) -> str:
    """Write a content security policy that allows this style and these scripts alone."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    images, asked = ("'self' blob: data:", "'self'") if is_live else ("blob: data:", "'none'")
    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {' '.join(map(digest, scripts))}; "
        f"img-src {images}; connect-src {asked}; base-uri 'none'; form-action 'none'"
    )


@cache
def _own_script() -> str:
    """Put the modules of the page into one, in the order of their numbers: none imports a later one."""
    modules = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATE.glob("[0-9]*.js"))]
    return re.sub(r"^import [^;]*;\n|^export (?=\w)", "", "\n".join(modules), flags=re.MULTILINE)


@cache
def _kept_script() -> str:
    """Put the kept libraries into one script, which leaves what they export in ``globalThis.kept``."""
    text = {path.stem: path.read_text(encoding="utf-8") for path in KEPT.glob("*.js")}
    modules = [
        f"kept.{name} = (() => {{{_as_function(text[name])}}})();" for name in ("preact", "hooks", "htm")
    ]
    script = "\n".join(
        ["globalThis.kept = {};", *modules, text["cosmos"], "kept.Graph = globalThis.Cosmos.Graph;"]
    )
    script = re.sub(r"^//# sourceMappingURL=.*\n?", "", script, flags=re.MULTILINE)
    return script.replace("<!--", "\\x3c!--").replace("</script", "<\\/script")  # both end or open a script


def _as_function(module: str) -> str:
    """Write a module as the body of a function that returns what it exports."""
    module = re.sub(r'import\{(\w+) as (\w+)\}from"preact";', r"const {\1: \2} = kept.preact;", module)
    module = module.replace("export default ", "return ")
    head, _, exported = module.partition("export{")
    return head + re.sub(r"([^\s,{]+) as (\w+)", r"\2: \1", exported and "return {" + exported)


def _as_json(values: Mapping[str, Any]) -> Markup:
    """Write JSON that no name of a file can end: ``<`` begins no tag, as it is written as an escape."""
    return Markup(json.dumps(values, separators=(",", ":")).replace("<", "\\u003c"))


def _confusion(facts: Facts) -> dict[str, Any] | None:
    """Return scores and counts of classes and clusters, clusters in the order of their classes."""
    truth, k = facts.findings.truth, facts.findings.n_clusters
    if truth is None:
        return None
    sorted_in = facts.findings.clusters >= 0
    clusters, classes = facts.findings.clusters[sorted_in], truth.classes[sorted_in]
    matching = match_clusters(clusters, classes)
    counts = np.zeros((truth.n_classes, k), dtype=int)
    np.add.at(counts, (classes, clusters), 1)
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
        "scores": score(clusters, classes),
    }
