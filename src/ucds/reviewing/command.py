"""Reviews a run on its page, or by a file of answers, and writes the reviewed run with its report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ucds.errors import InputError, UserError
from ucds.reports.page.report import report
from ucds.reviewing.server import serve_review
from ucds.reviewing.session import Session
from ucds.target.names import NAMES_FILE
from ucds.target.review import Review
from ucds.training.options import Compute


@dataclass(frozen=True)
class ReviewDone:
    """What a review came to.

    Attributes:
        run: folder of the reviewed run.
        answered: number of answers that count.
        out: folder of the run that was written; ``None`` if the review goes on later.
        n_clusters: number of clusters that have samples; ``None`` without such a run.
        agreement: share of the reviewed samples that its model gives their cluster; ``None`` without one.
    """

    run: Path
    answered: int
    out: Path | None = None
    n_clusters: int | None = None
    agreement: float | None = None

    @property
    def sentence(self) -> str:
        """What was done, for the person."""
        if self.out is None or self.agreement is None:
            return f"{self.answered} answers are kept in {self.run}: the same command goes on"
        return (
            f"{self.out} written: {self.n_clusters} clusters after {self.answered} answers; the model gives "
            f"{self.agreement:.1%} of the samples the cluster that they have in the review"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types."""
        return asdict(self) | {"run": str(self.run), "out": None if self.out is None else str(self.out)}


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
        images: folder or file of the samples, if they have moved.
        keep_clusters: whether the number of clusters stays, see :class:`ucds.target.review.Review`.
        open_browser: whether the page opens in the browser; its address is said in any case.
        compute: device, cache of decoded images and reporter; the defaults if ``None``.

    Raises:
        InputError: the run cannot be reviewed, its review is open already, or the answers cannot be used.
        DamagedFileError: a file of the run, or of answers, cannot be read.
        NoSpaceError: the disk is full, or a folder is not writable.
    """
    run, compute = Path(run), compute or Compute()
    state = Review(run, keep_clusters=keep_clusters, images=images, compute=compute.silent())
    written: list[ReviewDone] = []

    def finish() -> str:
        result = state.finish(out)
        done = ReviewDone(run, state.answered, result.path, result.n_clusters, result.agreement)
        written.append(done)
        try:
            names = result.path / NAMES_FILE
            report(
                result.path,
                None if images is None else Path(images),
                names=names if names.exists() else None,
                compute=compute.silent(),
            )
        except UserError as error:
            return f"{done.sentence}; it has no report: {error}"
        return done.sentence

    if answers is not None:
        taken, missed = state.take(answers)
        if not taken:
            raise InputError(f"none of the answers in {answers} is about samples of {run}")
        if missed:
            compute.reporter.say(f"{missed} of {taken + missed} answers are about samples that are not here")
        finish()
    else:
        place = None if images is None else Path(images)
        session = Session(state, place, compute)
        serve_review(run, session, finish, open_browser=open_browser, say=compute.reporter.say)
    return written[-1] if written else ReviewDone(run, state.answered)
