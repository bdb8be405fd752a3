"""Exports a finished model: chooses the form, compares the result with the model, writes the files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ucds.arguments import checked
from ucds.choices import ExportFormat
from ucds.encoders.encoder import ViewpointEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, warn
from ucds.exports.graph import describe, write_graph
from ucds.exports.hub import require_hub_folder, write_hub_folder
from ucds.extras import require_extra
from ucds.files import require_writable, write_atomically, write_text_atomically
from ucds.math.arrays import DoubleArray, FloatArray
from ucds.showing import shows
from ucds.training.inputs import view_for
from ucds.training.loaded import Model, load
from ucds.training.model_file import StoredModel
from ucds.training.options import Compute
from ucds.training.run_folder import place_of_output, require_model

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline

_NAMES: dict[ExportFormat, str] = {"onnx": "model.onnx", "sklearn": "model.skops", "hub": "hub"}
_COMPARED = 64


@shows()
@dataclass(frozen=True)
class Exported:
    """Files of an exported model.

    Attributes:
        path: file, or folder of the form "hub".
        form: form of the export.
        differences: largest difference between each output of a graph and the model's own, by name.
    """

    path: Path
    form: ExportFormat
    differences: dict[str, float]


@checked
def export(
    run: str | Path | Model, out: str | Path | None = None, *, form: ExportFormat = "onnx"
) -> Exported:
    """Write a finished model in a form that other programs run; ``ucds export`` does the same.

    A graph is compared with the model on 64 random samples before it is written; ``docs/outputs.md`` says
    what each form holds.

    Args:
        run: folder of a finished run, or a model that :func:`ucds.load` opened.
        out: file or folder to write; if ``None``, "model" or "hub" in the run folder.
        form: ``"onnx"``: a graph; ``"sklearn"``: the layers above the encoder; both with a description as
            JSON beside the file. ``"hub"``: a folder in the layout of a model hub.

    Raises:
        InputError: the model or ``out`` cannot be used, a package is not installed, or the graph's
            probabilities differ from the model's.
        DamagedFileError: the model file cannot be read.
        NoSpaceError: the result cannot be written.

    Warns:
        UcdsWarning: the model is a provider's.
    """
    if form != "hub":
        require_extra("export", f'`form="{form}"`')
    folder = None if isinstance(run, Model) else Path(run)
    suffix, needed = Path(_NAMES[form]).suffix, 0 if folder is None else require_model(folder).stat().st_size
    if out is not None:
        path = Path(out) if form == "hub" else require_writable(Path(out), suffix, needed=needed)
    elif folder is not None:
        path = place_of_output(folder, _NAMES[form], None, (suffix,), needed=needed)
    else:
        raise InputError("name the file to write (`out`): an opened model has no folder")
    if form == "hub":
        require_hub_folder(path, needed)
    described = path.with_name(f"{path.name}.json")
    if out is not None and form != "hub":
        described = require_writable(described, ".json")
    model = run if isinstance(run, Model) else load(run, compute=Compute("cpu"))
    if model.role == "source":
        warn("this is a provider's model: its holder needs no labels, and can search it for training data")
    if form == "hub":
        write_hub_folder(model.stored, path, folder)
        return Exported(path, form, {})
    description = describe(model.stored, "ucds", "onnx" if form == "onnx" else "skops")
    differences: dict[str, float] = {}
    if form == "sklearn":
        content = _scikit_bytes(model.stored)
    else:
        inputs = _random_inputs(model.stored.card.encoder)
        content, differences = write_graph(model.stored, description, inputs)
    write_atomically(path, lambda file: file.write(content))
    written = description | {"largest_difference": differences}
    write_text_atomically(described, json.dumps(written, indent=2) + "\n")
    return Exported(path, form, differences)


def _random_inputs(spec: EncoderSpec) -> FloatArray:
    """Draw pictures of random colours, or normal vectors, and return them as inputs of the encoder."""
    rng = np.random.default_rng(0)
    if spec.input_size is None:
        return rng.standard_normal((_COMPARED, spec.takes), np.float32)
    coarse, side = rng.integers(0, 256, (_COMPARED, 8, 8, 3), np.uint8), spec.stored_size
    smooth = [Image.fromarray(one).resize((side, side), Image.Resampling.BILINEAR) for one in coarse]
    return view_for(spec).test(np.stack([np.asarray(one) for one in smooth]).transpose(0, 3, 1, 2))


def as_scikit(stored: StoredModel) -> Pipeline:
    """Return a pipeline whose ``predict`` and ``predict_proba`` on features are those of a model.

    Bottleneck and prototypes together are one affine map, whose softmax is what a multinomial logistic
    regression computes. So the pipeline consists of scikit-learn's own classes only, and needs nothing of
    this package.
    """
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import Normalizer, PolynomialFeatures, StandardScaler

    head = stored.head
    prototypes = head.prototypes.astype(np.float64)
    weights, biases = prototypes.T @ head.weight, prototypes.T @ head.bias
    unit_length = Normalizer()
    unit_length.n_features_in_ = weights.shape[1]
    steps = [("unit_length", unit_length)] if head.unit_features else []
    if isinstance(stored.encoder, ViewpointEncoder):
        mean, radius = stored.encoder.point[:-1], -float(stored.encoder.point[-1])
        radii, constant = StandardScaler().fit(mean[None]), PolynomialFeatures(1).fit(mean[None])
        radii.scale_ = np.full(len(mean), radius)
        steps = [("radii", radii), ("constant", constant), ("unit_length", unit_length)]
        weights = np.roll(weights, 1, axis=1)  # the constant comes first there
    return Pipeline([*steps, ("clusters", _regression(weights, biases))])


def _regression(weights: DoubleArray, biases: DoubleArray) -> LogisticRegression:
    """Return a logistic regression with given weights ``(K, d)`` and biases ``(K,)``."""
    from sklearn.linear_model import LogisticRegression

    clusters = np.arange(len(weights))
    if len(weights) == 2:  # scikit-learn has one row for two classes: that of the second against the first
        weights, biases = weights[1:] - weights[:1], biases[1:] - biases[:1]
    regression = LogisticRegression()
    regression.coef_, regression.intercept_, regression.classes_ = weights, biases, clusters
    regression.n_features_in_ = weights.shape[1]
    return regression


def _scikit_bytes(stored: StoredModel) -> bytes:
    """Return the contents of a ``.skops`` file of a pipeline, which runs no code when it is opened."""
    import skops.io

    return bytes(skops.io.dumps(as_scikit(stored)))
