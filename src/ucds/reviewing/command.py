"""Reviews a run on its page, or by a file of answers, and writes the reviewed run with its report."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ucds.errors import InputError, UserError
from ucds.reports.page.findings import read_record
from ucds.reports.page.report import report
from ucds.reviewing.server import serve_review
from ucds.reviewing.session import Session
from ucds.target.names import NAMES_FILE
from ucds.target.remembered import ReviewedRun
from ucds.target.review import Review
from ucds.training.options import Compute


def review(
    run: str | Path,
    out: str | Path | None = None,
    *,
    answers: str | Path | None = None,
    images: str | Path | None = None,
    keep_clusters: bool = False,
    open_browser: bool = True,
    compute: Compute | None = None,
) -> ReviewedRun | None:
    """Ask a person about the clusters of a run, on a page of this machine; ``ucds review`` does the same.

    Args:
        run: folder of a finished target run.
        out: run folder to make at the end; the name of the run with "-reviewed" if ``None``.
        answers: file of answers that is taken over in place of a page; the reviewed run is then written.
        images: samples, if they have moved; for a run on a folder of features the folder of its images.
        keep_clusters: whether the number of clusters stays, see :class:`ucds.target.review.Review`.
        open_browser: whether the page opens in the browser; its address is said in any case.
        compute: device, cache of decoded images and reporter; the defaults if ``None``.

    Returns:
        The run that was written last; ``None`` if the review goes on later.

    Raises:
        InputError: the run cannot be reviewed, its review is open already, or the answers cannot be used.
        DamagedFileError: a file of the run, or of answers, cannot be read.
        NoSpaceError: the disk is full, or a folder is not writable.
    """
    run, compute, written = Path(run), compute or Compute(), None
    moved, pictures = read_record(run).split_places(None if images is None else Path(images))
    state = Review(run, keep_clusters=keep_clusters, images=moved, compute=compute.silent())

    def finish() -> str:
        nonlocal written
        written = state.finish(out)
        names = written.path / NAMES_FILE
        named = names if names.exists() else None
        try:
            report(written.path, moved, names=named, pictures=pictures, compute=compute.silent())
        except UserError as error:
            return f"{written.sentence}; it has no report: {error}"
        return written.sentence

    if answers is None:
        say = compute.reporter.say
        session = partial(Session, state, moved, pictures, compute)
        serve_review(run, session, finish, open_browser=open_browser, say=say)
        return written
    taken, missed = state.take(answers)
    if not taken:
        raise InputError(f"none of the answers in {answers} is about samples of {run}")
    if missed:
        compute.reporter.say(f"{missed} of {taken + missed} answers are about samples that are not here")
    finish()
    return written
