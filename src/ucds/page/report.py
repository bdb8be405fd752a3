"""Writes the report of a run: opens the run, finds the facts, and renders the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ucds.arguments import checked
from ucds.data.about import KeptAbout, choose_rows, find_about
from ucds.data.content import find_places
from ucds.data.dataset import Dataset
from ucds.data.features import FeatureFolder, Pictures
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples
from ucds.data.sources import Source, require_there
from ucds.errors import InputError
from ucds.files import write_text_atomically
from ucds.math.novelty import reject
from ucds.page.findings import Findings, RunRecord, find_facts, read_record
from ucds.page.render import render_about, render_page, write_down
from ucds.page.thumbnails import Images, lay_out
from ucds.page.words import finish, summarise, warn
from ucds.showing import shows
from ucds.target.followed import Followed, describe_followed, what_is_followed
from ucds.target.known import Gathered, KnownSamples, open_known, open_samples, places_in
from ucds.target.predictions import read_names
from ucds.target.remembered import read_remembered
from ucds.target.review import Review
from ucds.training.centring import as_trained
from ucds.training.loaded import load
from ucds.training.model_file import StoredModel
from ucds.training.options import Compute
from ucds.training.run_folder import ABOUT_FILE, VOTES_FILE, place_of_output


@shows()
@dataclass(frozen=True)
class WrittenReport:
    """A report that was written.

    Attributes:
        path: HTML file.
        samples: number of samples that the report is about.
        n_clusters: number of clusters, K.
        summary: sentences about the clusters.
        warnings: sentences that a reader should know first.
    """

    path: Path
    samples: int
    n_clusters: int
    summary: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Content of a page about a run: the findings, and sentences about them."""

    findings: Findings
    record: RunRecord
    stored: StoredModel
    names: Mapping[int, str]
    what: str  # "images" or "samples"
    subtitle: str
    summary: Sequence[str]
    warnings: Sequence[str]
    followed: Sequence[Followed]


@checked
def report(
    run: str | Path,
    images: Source | None = None,
    out: str | Path | None = None,
    *,
    pictures: str | Path | None = None,
    about: str | Path | None = None,
    group: str | None = None,
    compute: Compute | None = None,
) -> WrittenReport:
    """Write a page that shows and judges the clusters of a run; ``ucds report`` does the same.

    Equal runs and samples give equal files. Where samples lie in class folders, the page compares the
    clusters with them.

    Args:
        run: folder of a finished target run.
        images: samples, see :func:`ucds.data.sources.find_samples`; those that the run was trained on if
            ``None``.
        out: HTML file to write; ``report.html`` in the run folder if ``None``.
        pictures: folder of the images that a folder of features was computed from, where each has its id as
            its path; the folder that they were read from if ``None``. Without images the page shows ids.
        about: table about the samples, see :func:`ucds.data.about.find_about`, for what the clusters follow;
            if ``None``, what the run keeps of the table of its training, and else folders and the headers of
            image files.
        group: column of what belongs together, such as the patient; that of the training if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run or the samples cannot be used.
        DamagedFileError: a file of the run cannot be read.
        NoSpaceError: the page cannot be written.
    """
    run, compute = Path(run), compute or Compute()
    for place in (images, about):
        if place is not None:
            require_there(place)
    sources = places_in(read_record(run).described) if images is None else [images]
    path = place_of_output(run, "report.html", out, (".html", ".htm"), *sources)
    facts = gather(run, images, pictures=pictures, about=about, group=group, compute=compute)
    findings = facts.findings
    told, written = render_about(facts, range(len(findings.ids))), write_down(facts)
    sheets = () if findings.thumbnails is None else lay_out(findings.thumbnails)
    write_text_atomically(path, render_page(written["fixed"]["title"], written, told, sheets))
    sentences = tuple(facts.summary), tuple(facts.warnings)
    return WrittenReport(path, findings.total, findings.n_clusters, *sentences)


def gather(
    run: Path,
    images: Source | None,
    *,
    pictures: str | Path | None,
    about: str | Path | None = None,
    group: str | None = None,
    compute: Compute,
) -> Facts:
    """Open a run and its samples, and find what a page says of them; see :func:`report`."""
    record = read_record(run)
    model, remembered = load(run, role="target", compute=compute), None
    if (run / VOTES_FILE).exists():
        remembered, features = read_remembered(run)
    opened = (
        open_known(model, record.described, remembered) if images is None else open_samples(model, images)
    )
    samples, strangers = opened.data.samples, np.empty(0, np.int64)
    known = None if remembered is None else remembered.outlines(samples, features)
    seen = as_trained(run, model, opened.data, about) if known is None else Dataset(known)
    trained_on = images is None or record.described.get("data") == samples.fingerprint
    if remembered is not None and not trained_on:
        fits = remembered.fits(model, seen, features)
        if fits is not None:
            strangers = np.flatnonzero(reject(fits))
    findings = find_facts(
        model,
        seen,
        record.labels if trained_on else None,
        images_of(samples, None if pictures is None else Path(pictures)),
        opened.texts,
        Review(run) if trained_on and remembered is not None else None,
        remembered,
        strangers,
    )
    what = "samples" if samples.kind == "embeddings" else "images"
    followed = _follow(run, samples, findings, about, group)
    summary = summarise(findings, record, what)
    if sentence := describe_followed(followed, what):
        summary.append(finish(sentence))
    learned = findings.total if remembered is None else len(remembered.ids)
    warnings = warn(findings, record, what, learned, samples.skipped)
    if known is None and not trained_on:
        warnings.append(f"The model was trained on other {what} than these.")
    warnings += map(finish, opened.told)
    described, encoder = record.described, model.stored.card.encoder.called
    method, seed = described.get("method", "unknown"), described.get("seed", "unknown")
    version = (described.get("versions") or {}).get("ucds", "unknown")
    return Facts(
        findings,
        record,
        model.stored,
        read_names(run, model.stored),
        what,
        f"method {method}, {encoder}, seed {seed}, ucds {version}",
        summary,
        warnings,
        followed,
    )


def _follow(
    run: Path, samples: Samples, findings: Findings, about: str | Path | None, group: str | None
) -> list[Followed]:
    """Test what the clusters follow: columns of a table, that of the run, or what image files tell."""
    places, kept = find_places(findings.ids, samples.ids), KeptAbout.load(run / ABOUT_FILE)
    if about is None and kept is not None and (kept.places(samples.keys) >= 0).any():
        known = kept.of(samples, places)
    else:
        known = find_about(samples, about, places)
    if group is None and kept is not None and kept.group in known:
        group = kept.group
    rows = np.flatnonzero(findings.clusters >= 0)
    return what_is_followed(findings.clusters[rows], choose_rows(known, rows), group)


def images_of(samples: Samples, root: Path | None) -> Images | None:
    """Return the images of samples, by position; ``None`` if there are none.

    Images of a folder of features are sought below ``root``; if ``None``, where they were read from.
    """
    parts = samples.parts if isinstance(samples, KnownSamples) else [samples]
    if root is not None and not any(isinstance(part, FeatureFolder) for part in parts):
        raise InputError("`pictures` is for a folder of features: leave it out here")
    size = next((part.size for part in parts if isinstance(part, ImageSamples)), None)
    found = [part.find_pictures(root, size) if isinstance(part, FeatureFolder) else part for part in parts]
    if all(part.are_gone if isinstance(part, Pictures) else part.kind != "images" for part in found):
        return None
    if isinstance(samples, KnownSamples):
        return Gathered(found, samples.rows.part, samples.rows.row)
    return found[0]
