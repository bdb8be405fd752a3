"""Reviews a run on its page, or by a file of answers, and writes the reviewed run with its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ucds.errors import InputError, UserError
from ucds.reports.page.record import read_record
from ucds.reports.page.report import report
from ucds.reviewing.server import serve_review
from ucds.reviewing.session import Session
from ucds.target.names import NAMES_FILE
from ucds.target.remembered import ReviewedRun
from ucds.target.review import Review
from ucds.training.options import Compute


@dataclass(frozen=True)
class ReviewDone:
    """What a review came to.

    Attributes:
        run: folder of the reviewed run.
        answered: number of answers that count.
        written: run that was written; ``None`` if the review goes on later.
    """

    run: Path
    answered: int
    written: ReviewedRun | None = None

    @property
    def sentence(self) -> str:
        """What was done, for the person."""
        if self.written is None:
            return f"{self.answered} answers are kept in {self.run}: the same command goes on"
        return (
            f"{self.written.path} written: {self.written.n_clusters} clusters after {self.answered} answers; "
            f"the model gives {self.written.agreement:.1%} of the samples the cluster that they have in the "
            "review"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types."""
        written = self.written
        return {
            "run": str(self.run),
            "answered": self.answered,
            "out": None if written is None else str(written.path),
            "n_clusters": written and written.n_clusters,
            "agreement": written and written.agreement,
        }


def review(
    run: str | Path,
    out: str | Path | None = None,
    *,
    answers: str | Path | None = None,
    images: str | Path | None = None,
    keep_clusters: bool = False,
    open_browser: bool = True,
    compute: Compute | None = None,
) -> ReviewDone:
    """Ask a person about the clusters of a run, on a page of this machine; ``ucds review`` does the same.

    Args:
        run: folder of a finished target run.
        out: run folder to make at the end; the name of the run with "-reviewed" if ``None``.
        answers: file of answers that is taken over in place of a page; the reviewed run is then written.
        images: samples, if they have moved; for a run on a folder of features the folder of its images.
        keep_clusters: whether the number of clusters stays, see :class:`ucds.target.review.Review`.
        open_browser: whether the page opens in the browser; its address is said in any case.
        compute: device, cache of decoded images and reporter; the defaults if ``None``.

    Raises:
        InputError: the run cannot be reviewed, its review is open already, or the answers cannot be used.
        DamagedFileError: a file of the run, or of answers, cannot be read.
        NoSpaceError: the disk is full, or a folder is not writable.
    """
    run, compute = Path(run), compute or Compute()
    moved, pictures = read_record(run).split_places(None if images is None else Path(images))
    state = Review(run, keep_clusters=keep_clusters, images=moved, compute=compute.silent())
    done = ReviewDone(run, 0)

    def finish() -> str:
        nonlocal done
        written = state.finish(out)
        done, names = ReviewDone(run, state.answered, written), written.path / NAMES_FILE
        named = names if names.exists() else None
        try:
            report(written.path, moved, names=named, pictures=pictures, compute=compute.silent())
        except UserError as error:
            return f"{done.sentence}; it has no report: {error}"
        return done.sentence

    if answers is None:
        serve_review(
            run,
            lambda: Session(state, moved, pictures, compute),
            finish,
            open_browser=open_browser,
            say=compute.reporter.say,
        )
        return done if done.written else ReviewDone(run, state.answered)
    taken, missed = state.take(answers)
    if not taken:
        raise InputError(f"none of the answers in {answers} is about samples of {run}")
    if missed:
        compute.reporter.say(f"{missed} of {taken + missed} answers are about samples that are not here")
    finish()
    return done
