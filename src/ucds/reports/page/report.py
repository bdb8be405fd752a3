"""Writes the report of a run: opens the run, finds the facts, and renders the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ucds.data.columns import read_texts
from ucds.data.features import FeatureFolder
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples
from ucds.data.sources import Source, place_of, require_there
from ucds.errors import InputError
from ucds.files import require_writable, write_text_atomically
from ucds.reports.page.findings import find_facts, read_record
from ucds.reports.page.render import render
from ucds.reports.page.thumbnails import Images
from ucds.reports.page.words import summarise, warn
from ucds.target.predictions import ClusterNames
from ucds.target.remembered import read_remembered
from ucds.target.review import Review
from ucds.training.loaded import load
from ucds.training.options import Compute
from ucds.training.run_folder import VOTES_FILE, files_read, require_same_samples


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


def report(
    run: str | Path,
    images: Source | None = None,
    out: str | Path | None = None,
    *,
    names: str | Path | None = None,
    pictures: str | Path | None = None,
    compute: Compute | None = None,
) -> WrittenReport:
    """Write a page that shows, judges and corrects the clusters of a run; ``ucds report`` does the same.

    Equal runs and samples give equal files. Where samples lie in class folders, the page compares the
    clusters with them.

    Args:
        run: folder of a finished target run.
        images: samples, see :func:`ucds.data.sources.find_samples`; those that the run was trained on if
            ``None``.
        out: HTML file to write; ``report.html`` in the run folder if ``None``.
        names: file of names that was saved from an earlier report; none if ``None``.
        pictures: folder of the images that a folder of features was computed from, where each has its id as
            its path; the folder that they were read from if ``None``. Without images the page shows ids.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run, the samples or the names cannot be used.
        DamagedFileError: a file of the run or of names cannot be read.
        NoSpaceError: the page cannot be written.
    """
    run, compute = Path(run), compute or Compute()
    named = None if names is None else ClusterNames.load(names)
    record = read_record(run)
    chosen = record.images if images is None else images
    require_there(chosen)
    path = run / "report.html"
    if out is not None:
        path = require_writable(Path(out), ".html", ".htm", inputs=files_read(run, chosen, names))
    model = load(run, role="target", compute=compute)
    known = {} if named is None else named.of(model.stored)
    remembered = read_remembered(run)[0] if (run / VOTES_FILE).exists() else None
    data, place = model.open(chosen), place_of(chosen)
    if images is None:
        require_same_samples(record.described, data.samples.fingerprint)
    trained_on = record.described.get("data") == data.samples.fingerprint
    findings = find_facts(
        model,
        data,
        record.labels if trained_on else None,
        images_of(data.samples, None if pictures is None else Path(pictures)),
        {} if place is None else read_texts(place),
        Review(run) if trained_on and remembered is not None else None,
        remembered,
    )
    what = "samples" if data.samples.kind == "embeddings" else "images"
    skipped = data.samples.skipped if isinstance(data.samples, ImageSamples) else 0
    summary = summarise(findings, record, what)
    warnings = warn(findings, record, skipped, what, trained_on)
    described, encoder = record.described, model.stored.card.encoder.name
    method, seed = described.get("method", "unknown"), described.get("seed", "unknown")
    version = described.get("versions", {}).get("ucds", "unknown")
    subtitle = f"method {method}, encoder {encoder}, seed {seed}, ucds {version}"
    page = render(findings, record, model.stored, subtitle, summary, warnings, known)
    write_text_atomically(path, page)
    return WrittenReport(path, len(data.samples), model.n_clusters, tuple(summary), tuple(warnings))


def images_of(samples: Samples, root: Path | None) -> Images | None:
    """Return the images of samples, by position; ``None`` if there are none.

    Those of a folder of features lie below ``root``, or where they were read from if that is ``None``.

    Raises:
        InputError: a root is given for other samples than a folder of features.
    """
    if isinstance(samples, FeatureFolder):
        return samples.find_pictures(root)
    if root is not None:
        raise InputError("--images names the images of a folder of features, and these samples are none")
    return samples if samples.kind == "images" else None
