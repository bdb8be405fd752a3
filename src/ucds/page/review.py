"""Reviews a run on a page of this machine, or by a file of answers, and writes the reviewed run.

The page is served to those alone who know its address.
"""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import uvicorn

from ucds.arguments import checked, require_kinds
from ucds.choices import Sorting, TableForm
from ucds.errors import InputError, UserError, shown
from ucds.files import lock, write_atomically, writing
from ucds.math.arrays import Watch
from ucds.page.findings import read_record
from ucds.page.report import report
from ucds.page.server import make_app
from ucds.page.session import Session
from ucds.received import open_received
from ucds.target.finishing import ReviewedRun
from ucds.target.predict import predict
from ucds.target.review import Review
from ucds.training.options import Compute
from ucds.training.run_folder import RunFolder

ADDRESS_FILE, PAGE_FILE = ".review", ".review.html"


@checked
def review(
    run: str | Path,
    out: str | Path | None = None,
    *,
    answers: str | Path | None = None,
    images: str | Path | None = None,
    open_browser: bool = True,
    hosts: Sequence[str] = (),
    compute: Compute | None = None,
) -> ReviewedRun | None:
    """Show the clusters of a run to a person, who changes them; ``ucds review`` does the same.

    Args:
        run: folder of a finished target run.
        out: run folder to make at the end; the name of the run with "-reviewed" if ``None``.
        answers: file of answers to apply; no page is opened, and the reviewed run is written at once.
        images: samples, if they have moved; for a run on a folder of features, the folder of the images.
        open_browser: whether the page opens in the browser; its address is always printed.
        hosts: further host names under which a browser reaches the page, such as through a proxy.
        compute: device, cache of decoded images and reporter; the defaults if ``None``.

    Returns:
        The run that was written last; ``None`` if the review goes on later.

    Raises:
        InputError: the run cannot be reviewed, its review is open already, or the answers cannot be used.
        DamagedFileError: a file of the run, or of answers, cannot be read.
        NoSpaceError: the disk is full, or a folder is not writable.
    """
    run, compute, written = Path(run), compute or Compute(), None
    if answers is not None and hosts:
        raise InputError("`hosts` are for the page, which `answers` leave closed: leave them out")
    if out is not None:
        RunFolder(Path(out)).require_free()
    moved, pictures = read_record(run).split_places(None if images is None else Path(images))
    state = Review(run, images=moved, compute=compute)

    def write_run() -> str:
        nonlocal written
        written = state.finish(_free(run, "reviewed") if out is None else out)
        try:
            report(written.path, moved, pictures=pictures, compute=compute.silent())
        except UserError as error:
            return f"{written.sentence}; it has no report: {error}"
        return written.sentence

    if answers is not None:
        taken, missed = state.take(answers)
        if not taken:
            raise InputError(f"none of the answers in {answers} is about samples of {run}")
        if missed:
            compute.reporter.say(f"{missed} of {taken + missed} answers are about unknown samples")
        write_run()
        return written
    session = Session(state, moved, pictures, compute)

    def finish(wanted: Mapping[str, Any], watch: Watch) -> str:
        form, how, sorts, said = wanted.get("table"), wanted.get("folders"), run, list[str]()
        require_kinds({"table": TableForm | None, "folders": Sorting | None}, {"table": form, "folders": how})
        if wanted.get("run") or (session.left_out and state.answered and (form or how)):
            said.append(write_run())
            sorts = run if written is None else written.path
        table = _free(run, "table", f".{form}") if form else None
        folder = run.with_name(f"{run.name}-sorted") if how else None
        _take_away(session, sorts, table, folder, how or "copy", watch, compute)
        said += [f"{table} written"] if table else []
        said += [f"Images sorted into {folder}"] if folder else []
        return ". ".join(said) or "Nothing was chosen, so nothing was written."

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits 40 ms
    token, origin = secrets.token_urlsafe(24), f"http://127.0.0.1:{listener.getsockname()[1]}"
    address = f"{origin}/{token}/"
    with listener, _only_review_of(run, address):
        app = make_app(session, token, finish, hosts)
        compute.reporter.say(f"review of {run}: {address}")
        with suppress(KeyboardInterrupt):  # the usual end, which uvicorn raises again after its own
            if open_browser:  # others see the command line of a browser, and not what is in this file
                webbrowser.open((run / PAGE_FILE).absolute().as_uri())
            uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
    return written


def _take_away(
    session: Session,
    sorts: Path,
    table: Path | None,
    folder: Path | None,
    how: Sorting,
    watch: Watch,
    compute: Compute,
) -> None:
    """Write a table and sorted folders, if named; the run's model sorts samples outside the review."""
    if folder is not None and session.files is None:
        raise InputError("the images of this run cannot be sorted: their files are gone, or never existed")
    if session.left_out and session.place is not None and (table or folder):
        found = predict(sorts, session.place, sort_into=folder, sort_how=how, compute=compute.silent())
        if table is not None:
            found.save(table, marked=True)
        return
    if table is not None:
        session.review.save_table(table)
    if folder is not None and session.files is not None:
        session.review.sort_into(folder, session.files, how=how, watch=watch)


def _free(run: Path, what: str, suffix: str = "") -> Path:
    """Return a free name beside a run; it has a number if an earlier output has the plain name."""
    names = (run.with_name(f"{run.name}-{what}{'' if n == 1 else f'-{n}'}{suffix}") for n in count(1))
    return next(path for path in names if not path.exists())


@contextmanager
def _only_review_of(run: Path, address: str) -> Iterator[None]:
    """Hold the review of a run, and leave the page's address where a second command finds it."""
    page = run / PAGE_FILE
    with writing(run / ADDRESS_FILE):
        opened = open_received(run / ADDRESS_FILE, "r+b")
    with opened as file:
        if not lock(file):
            other = shown(file.read(500).decode(errors="replace"))
            raise InputError(f"a review of {run} is open already: {other}")
        file.truncate(0)
        file.write(address.encode())
        file.flush()
        link = f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">'.encode()
        write_atomically(page, lambda file: file.write(link), is_private=True)
        try:
            yield
        finally:
            page.unlink(missing_ok=True)
