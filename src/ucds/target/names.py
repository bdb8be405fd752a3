"""Names that a person gave to the clusters of a model, as the report saves them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ucds.errors import InputError
from ucds.files import read_json

if TYPE_CHECKING:
    from ucds.training.model_file import StoredModel

NAMES_FILE = "names.json"
"""Name of the file in the folder of a reviewed run."""


class ClusterNames(BaseModel):
    """Contents of a file of names.

    Attributes:
        format: name and version of the form of the file.
        model: fingerprint of the model whose clusters are named.
        names: name of each named cluster by its number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["ucds-names/1"]
    model: str
    names: dict[Annotated[int, Field(ge=0)], Annotated[str, Field(min_length=1, max_length=80)]]

    @classmethod
    def load(cls, path: str | Path) -> ClusterNames:
        """Read a file of names.

        Raises:
            InputError: the file cannot be read.
            DamagedFileError: the file holds anything but names.
        """
        return read_json(path, cls, "file of names")

    def of(self, stored: StoredModel) -> dict[int, str]:
        """Return the names by cluster, if they are those of a model.

        Args:
            stored: model whose clusters are to be named.

        Raises:
            InputError: the names belong to the clusters of another model.
        """
        if self.model != stored.fingerprint or max(self.names, default=0) >= stored.card.n_clusters:
            raise InputError("the names belong to another model: type them in the report of this one")
        return self.names
