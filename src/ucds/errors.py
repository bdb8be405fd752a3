"""The errors and warnings a user may cause, told apart from faults of the package itself."""

from __future__ import annotations


class UserError(ValueError):
    """Something the user gave cannot be used; the message says what is wrong and what to do.

    The command line prints the message as one line and exits with status 2; Python callers
    can catch it as a ``ValueError``.
    """


class UcdsWarning(UserWarning):
    """Something the user should know, after which the work goes on."""


class Interrupted(Exception):  # noqa: N818  (no error: the run did as it was asked)
    """A run was asked to stop, and did so with its work saved."""
