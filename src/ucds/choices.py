"""Names that a user chooses between, on the command line and in Python alike."""

from __future__ import annotations

from typing import Literal, get_args

Accelerator = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
Role = Literal["source", "target"]
"""Side of a model or of a run: the provider is the source, the client is the target."""
Tune = Literal["full", "head"]
Method = Literal["pcd", "consensus"]
"""The paper's method (``docs/paper.md``), or ours (``docs/consensus.md``)."""
METHODS: tuple[Method, ...] = get_args(Method)
Transfer = Literal["guarded", "own", "hint", "opinion", "adopted"]
"""Use of a provider's labels: ``"guarded"`` lets the guard decide among the other four."""
Space = Literal["features", "principal", "diffused-features", "diffused-principal"]
SPACES: tuple[Space, ...] = get_args(Space)
"""Names of the spaces in which a target is clustered, see :func:`ucds.math.spaces.make_spaces`."""
Sorting = Literal["copy", "link", "move"]
"""Way in which images get into the folders of their clusters."""
PredictionFormat = Literal["table", "fiftyone", "label-studio"]
"""Form of a file of predictions: a table, or what one of these programs imports."""
