"""Errors and warnings about what a user can cause or mend; other errors are bugs of the package."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


_PACKAGE = __file__.removesuffix("errors.py")
_LONG_WORD = re.compile(r"(?<!\S)[^\s/]{81,}(?!\S)|\S{300,}")  # data, or a path that few systems take
_LONGEST = 600  # characters of a message, whatever was given to it
_SECRETS = re.compile(
    r"(\bucds_)[\w-]{20,}|(--key[= ])\S+"  # keys of clients
    r"|(?i:\b(postgres[\w+]*:/*)\S+)"  # a password can be in any part of the address
    r"|(?i:(passw(?:or)?d\s*=)\s*\S+)|(://)[^\s/'\"]*(?=@)"
)


_SHOWN = 20  # samples that cannot be used


class UserError(Exception):
    """An error whose cause lies outside the package; the message says what is wrong and what to do.

    The command line prints the message as one line and exits with status 2. Python code catches this class
    for all such errors, or one of its subclasses. Messages leave out secrets that somebody typed in a wrong
    place.
    """

    def __init__(self, message: object = "") -> None:
        text = _LONG_WORD.sub(lambda found: found[0][:77] + "...", without_secrets(str(message)))
        super().__init__(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 250]} ... {text[-200:]}")


class InputError(UserError, ValueError):
    """An argument, a setting or a file that cannot be used."""


class DamagedFileError(UserError):
    """A file in a format of this package that is damaged or otherwise cannot be read."""


class NoSpaceError(UserError):
    """A file that cannot be written: the disk is full, or the folder is not writable."""


class ServiceUnavailableError(UserError):
    """A label service that cannot be reached, or that could not answer in time."""


class RefusedError(UserError):
    """A label service that refuses: the key, the budget, or the form of the question or of the answer."""


class UcdsWarning(UserWarning):
    """A warning of this package; the work goes on."""


class Interrupted(Exception):  # noqa: N818  (no error: the run was asked to)
    """The run was asked to stop; it has saved its work and stopped."""


def warn_of_skipped(reasons: Sequence[str], summary: str) -> None:
    """Warn of each of the first skipped samples, then of all in a summary; do nothing if none is skipped."""
    for told in [*(f"{reason}; it is skipped" for reason in reasons[:_SHOWN]), *[summary] * bool(reasons)]:
        warn(told)


def warn(message: str) -> None:
    """Warn, and name as its place the line outside the package that led here."""
    frame = caller = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            caller = frame.f_back
        frame = frame.f_back
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("sklearn."):
        caller = caller.f_back  # such as `fit_predict`, which calls this package for the user
    place = caller.f_code.co_filename, caller.f_lineno, caller.f_globals.get("__name__")
    warnings.warn_explicit(
        message, UcdsWarning, *place, registry=caller.f_globals.setdefault("__warningregistry__", {})
    )


def without_secrets(text: str) -> str:
    """Return a text without the keys of label services, and without anything that may hold a password."""
    return _SECRETS.sub(lambda found: f"{next(filter(None, found.groups()))}...", text)


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return the start of an error's message, on one line, to be quoted in another message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def first_problem(error: ValidationError) -> str:
    """Describe the first problem of a message or file in a few words, without repeating its content."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def brief(value: object, limit: int = 80) -> str:
    """Return the start of a value as Python writes it, on one line, to be shown in a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown(text: str, limit: int = 500) -> str:
    """Return the start of another party's text as it may be printed, on one line; see :func:`printable`."""
    text = " ".join(text.split())
    return printable(text if len(text) <= limit else text[: limit - 3] + "...")


def printable(text: str) -> str:
    """Return text as one line, with control characters as escapes, so that it cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
