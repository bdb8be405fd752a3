"""Writes the report of a run: opens the run, finds the facts, and renders the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ucds.arguments import checked
from ucds.data.about import choose_rows, find_about
from ucds.data.columns import read_texts
from ucds.data.content import find_places
from ucds.data.features import FeatureFolder
from ucds.data.images import ImageSamples
from ucds.data.kept_about import KeptAbout
from ucds.data.samples import Samples
from ucds.data.sources import Source, place_of, require_there
from ucds.errors import InputError
from ucds.files import write_text_atomically
from ucds.math.novelty import reject
from ucds.page.findings import Findings, RunRecord, find_facts, read_record
from ucds.page.render import render_about, render_page, write_down
from ucds.page.thumbnails import Images, lay_out
from ucds.page.words import finish, summarise, warn
from ucds.showing import shows
from ucds.target.fits import fit
from ucds.target.followed import Followed, describe_followed, what_is_followed
from ucds.target.predictions import ClusterNames
from ucds.target.remembered import read_remembered
from ucds.target.review import Review
from ucds.training.centring import as_trained
from ucds.training.loaded import load
from ucds.training.model_file import StoredModel
from ucds.training.options import Compute
from ucds.training.run_folder import ABOUT_FILE, VOTES_FILE, place_of_output, require_same_samples


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
    names: str | Path | None = None,
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
        names: file of names of the clusters; if ``None``, ``names.json`` in the run folder, if it exists.
        pictures: folder of the images that a folder of features was computed from, each under its id as its
            path; if ``None``, the folder from which they were read. Without images the page shows ids.
        about: table about the samples, see :func:`ucds.data.about.find_about`, to find what the clusters
            follow. If ``None``, the table that the run keeps from its training counts or, without one,
            folders and the headers of image files.
        group: column that says which samples belong together, such as the patient; the run's if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run, the samples or the names cannot be used.
        DamagedFileError: a file of the run or of names cannot be read.
        NoSpaceError: the page cannot be written.
    """
    run, compute = Path(run), compute or Compute()
    chosen = read_record(run).images if images is None else images
    for place in (chosen, about):
        if place is not None:
            require_there(place)
    path = place_of_output(run, "report.html", out, (".html", ".htm"), chosen, names)
    facts = gather(run, images, names=names, pictures=pictures, about=about, group=group, compute=compute)
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
    names: str | Path | None,
    pictures: str | Path | None,
    about: str | Path | None = None,
    group: str | None = None,
    compute: Compute,
) -> Facts:
    """Open a run and its samples, and find what a page says of them; see :func:`report`."""
    named, record = ClusterNames.find(run, names), read_record(run)
    chosen = record.images if images is None else images
    model = load(run, role="target", compute=compute)
    data, place = model.open(chosen), place_of(chosen)
    seen, remembered, strangers = as_trained(run, model, data, about), None, np.empty(0, np.int64)
    if (run / VOTES_FILE).exists():
        remembered, features = read_remembered(run)
        if (fits := fit(model, seen, remembered, features)) is not None:
            strangers = np.flatnonzero(reject(fits))
    if images is None:
        require_same_samples(record.described, data.samples.fingerprint)
    trained_on = record.described.get("data") == data.samples.fingerprint
    known = {} if named is None else named.of(model.stored)
    findings = find_facts(
        model,
        seen,
        record.labels if trained_on else None,
        images_of(data.samples, None if pictures is None else Path(pictures)),
        {} if place is None else read_texts(place),
        Review(run) if trained_on and remembered is not None else None,
        remembered,
        strangers,
    )
    what = "samples" if data.samples.kind == "embeddings" else "images"
    skipped = data.samples.skipped if isinstance(data.samples, ImageSamples) else 0
    samples, places = data.samples, find_places(findings.ids, data.samples.ids)
    kept = KeptAbout.load(run / ABOUT_FILE)
    if about is None and kept is not None and (kept.places(samples.keys) >= 0).any():
        own = kept.of(samples, places)
    else:
        own = find_about(samples, about, places)
    if group is None and kept is not None and kept.group in own:
        group = kept.group
    rows = np.flatnonzero(findings.clusters >= 0)
    own = choose_rows(own, rows)
    followed = what_is_followed(findings.clusters[rows], own, group)
    summary = summarise(findings, record, what)
    if sentence := describe_followed(followed, what):
        summary.append(finish(sentence))
    described, encoder = record.described, model.stored.card.encoder.name
    method, seed = described.get("method", "unknown"), described.get("seed", "unknown")
    version = described.get("versions", {}).get("ucds", "unknown")
    return Facts(
        findings,
        record,
        model.stored,
        known,
        what,
        f"method {method}, encoder {encoder}, seed {seed}, ucds {version}",
        summary,
        warn(findings, record, skipped, what, trained_on),
        followed,
    )


def images_of(samples: Samples, root: Path | None) -> Images | None:
    """Return the images of samples, by position; ``None`` if there are none.

    Images of a folder of features are sought below ``root``; if ``None``, where they were read from.

    Raises:
        InputError: a root is given, but the samples are not a folder of features.
    """
    if isinstance(samples, FeatureFolder):
        return samples.find_pictures(root)
    if root is not None:
        raise InputError("`pictures` is for a folder of features: leave it out here")
    return samples if samples.kind == "images" else None
