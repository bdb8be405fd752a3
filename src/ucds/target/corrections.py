"""Corrections that a person made in the report of a run, as the page saves them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ucds.errors import InputError, UcdsWarning
from ucds.files import read_json
from ucds.math.constraints import Constraints, Pair

Group = Annotated[list[str], Field(min_length=1)]


class GroupPair(BaseModel):
    """Two groups of samples, by their ids.

    Attributes:
        one: ids of the first group.
        other: ids of the second group.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    one: Group
    other: Group


class Corrections(BaseModel):
    """Contents of a file of corrections. Clusters are named by samples, as their numbers change.

    Attributes:
        format: name and version of the form of the file.
        model: fingerprint of the model whose report the corrections were made in.
        together: pairs of groups that belong to one cluster.
        apart: pairs of groups that belong to two clusters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ucds-corrections/1"]
    model: str
    together: list[GroupPair]
    apart: list[GroupPair]

    @classmethod
    def load(cls, path: str | Path) -> Corrections:
        """Read a file of corrections.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but corrections.
        """
        return read_json(path, cls, "file of corrections")

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any correction."""
        return hashlib.sha256(self.model_dump_json().encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def among(self, ids: Sequence[str]) -> Constraints:
        """Find the samples that the corrections are about.

        Args:
            ids: ids of all samples.

        Returns:
            The corrections by positions of the samples. Samples that are not there are left out.

        Raises:
            InputError: none of the corrections is about these samples.

        Warns:
            UcdsWarning: some corrections are about other samples.
        """
        named = {name for pair in self.together + self.apart for name in pair.one + pair.other}
        place = {name: i for i, name in enumerate(ids) if name in named}

        def find(pairs: list[GroupPair]) -> tuple[Pair, ...]:
            groups = [[[place[n] for n in group if n in place] for group in (p.one, p.other)] for p in pairs]
            return tuple((np.array(one), np.array(other)) for one, other in groups if one and other)

        found = Constraints(find(self.together), find(self.apart))
        given, known = len(self.together + self.apart), len(found.together + found.apart)
        if not known:
            raise InputError("none of the corrections is about these samples: train on those of the report")
        if known < given:
            message = f"{given - known} of {given} corrections are about samples that are not here"
            warnings.warn(message, UcdsWarning, stacklevel=2)
        return found
