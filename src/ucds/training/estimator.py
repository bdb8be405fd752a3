"""The common part of the two scikit-learn estimators: parameters, inputs, prediction, features, files.

Methods import the modules that they use, so that importing an estimator takes less than a second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ucds.arguments import checked, require_kinds
from ucds.choices import (
    DEFAULT_WEIGHTS,
    NO_WEIGHTS,
    Accelerator,
    Method,
    Precision,
    Role,
    Tune,
    read_clusters,
)
from ucds.data.sources import find_samples
from ucds.errors import InputError, warn
from ucds.training.options import Compute, EncoderOptions, RunOptions, default_cache_dir
from ucds.training.progress import Quiet, terminal_reporter

if TYPE_CHECKING:
    from ucds.config import MethodSettings
    from ucds.data.dataset import Dataset
    from ucds.data.samples import Samples
    from ucds.data.sources import Source
    from ucds.encoders.encoder import Encoder
    from ucds.training.loaded import Model
    from ucds.training.model_file import StoredModel
    from ucds.training.prepare import Training
    from ucds.training.work import Work

FolderOrArray = str | Path | ArrayLike


class ClusteringEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Parameters and answers of both estimators; their own docstrings describe the parameters."""

    _role: ClassVar[Role]
    """Side of the estimator; a folder for the source side holds one folder per domain."""

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        backbone: str | Encoder | None = None,
        weights: str = "default",
        method: Method | None = None,
        tune: Tune | None = None,
        settings: MethodSettings | Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        accelerator: Accelerator = "auto",
        precision: Precision = "32-true",
        cache: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.backbone = backbone
        self.weights = weights
        self.method = method
        self.tune = tune
        self.settings = settings
        self.random_state = random_state
        self.accelerator = accelerator
        self.precision = precision
        self.cache = cache
        self.verbose = verbose

    def predict(self, X: FolderOrArray) -> NDArray[np.int64]:  # noqa: N803  (scikit-learn's name)
        """Return the most probable cluster of each sample.

        Args:
            X: ``(n, d)`` vectors, or a folder of images (with one folder per domain for the source side).

        Returns:
            ``(n,)`` int64 in ``[0, n_clusters_)``, or -1 for an image that cannot be used.

        Raises:
            InputError: the samples cannot be read, or are not of the kind that the model takes.
        """
        data = self._open_fitted(X, self._role)
        return data.samples.as_listed(self._fitted.decide(data)[0], -1)

    def predict_proba(self, X: FolderOrArray) -> NDArray[np.float32]:  # noqa: N803
        """Compute the probability of each cluster for each sample.

        Args:
            X: samples, as in :meth:`predict`.

        Returns:
            ``(n, n_clusters_)`` float32, rows sum to 1; NaN for an image that cannot be used.

        Raises:
            InputError: the samples cannot be read, or are not of the kind that the model takes.
        """
        data = self._open_fitted(X, self._role)
        return data.samples.as_listed(self._fitted.outputs(data).probabilities, np.nan)

    def transform(self, X: FolderOrArray) -> Any:  # noqa: N803
        """Compute the features in which the clusters lie, as :meth:`ucds.Model.transform` does.

        The softmax of ``transform(X) @ prototypes_.T`` is :meth:`predict_proba`. Columns that the clusters do
        not use are zero.

        Args:
            X: samples, as in :meth:`predict`.

        Returns:
            ``(n, width)`` float32, where ``width`` is the setting ``bottleneck_width``; NaN for an image that
            cannot be used. After ``set_output(transform="pandas")`` a data frame.

        Raises:
            InputError: the samples cannot be read, or are not of the kind that the model takes.
        """
        data = self._open_fitted(X, self._role)
        return data.samples.as_listed(self._fitted.outputs(data).features, np.nan)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of :meth:`transform`, for :meth:`get_feature_names_out` of scikit-learn."""
        return self.stored_.card.bottleneck_width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # features are float32, whatever the samples are
        return tags

    def save(self, folder: str | Path) -> None:
        """Write the model into a run folder, which :meth:`load` reads.

        Raises:
            InputError: the folder has a model already.
            NoSpaceError: the folder cannot be written.
        """
        self._fitted.save(folder)

    @classmethod
    @checked
    def load(cls, run: str | Path, **parameters: Any) -> Self:
        """Open the model of a finished run as a fitted estimator with the parameters of the run.

        So a clone of the estimator makes the same model from the same samples, with the same versions of all
        packages, except for the noise of differential privacy. A network that was trained as a whole starts
        from its original weights again.

        Args:
            run: run folder of this estimator's side.
            parameters: parameters to change, such as ``accelerator`` and ``cache``.

        Raises:
            InputError: there is no finished run of this side in the folder, or a parameter cannot be used.
            DamagedFileError: the model file cannot be read.
        """
        from ucds.encoders.encoder import Encoder
        from ucds.training.model_file import load_model

        cls(**parameters)._compute()  # parameters that cannot be used are refused before a file is read
        backbone = parameters.get("backbone")
        require_kinds({"backbone": str | Encoder | None}, {"backbone": backbone})
        stored = load_model(
            Path(run), role=cls._role, encoder=None if isinstance(backbone, str) else backbone
        )
        estimator = cls(**{**_parameters_of(stored), **parameters})
        estimator._take(stored)
        return estimator

    def _fit(
        self,
        X: FolderOrArray,  # noqa: N803
        train: Callable[[Work[MethodSettings], Encoder, Dataset], Training],
        sample_domain: ArrayLike | None = None,
        labelled: bool = False,
    ) -> Self:
        from ucds.training.run import describe_trained, how_made

        work = self._work(labelled)
        for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        data, encoder = self._open(X, sample_domain, work.settings)
        found, name = train(work, encoder, data), type(self).__name__
        making = how_made(
            self._role, self.n_clusters, encoder, work.settings, work.seed, work.compute.precision
        )
        self._take(describe_trained(found, self._role, name, making))
        self.stages_ = list(found.stages)
        self.ids_ = data.samples.listed
        self.labels_ = data.samples.as_listed(self._fitted.decide(data)[0], -1)
        return self

    def _take(self, stored: StoredModel) -> None:
        from ucds.encoders.spec import VECTORS

        self.stored_ = stored
        self.n_clusters_ = stored.card.n_clusters
        self.domain_names_ = stored.card.domains
        self.prototypes_ = stored.head.prototypes.T
        self.proportions_ = stored.proportions
        if stored.card.encoder.name in VECTORS:
            self.n_features_in_ = getattr(self, "n_features_in_", stored.card.encoder.takes)
            if stored.card.encoder.columns is not None:
                self.feature_names_in_ = np.array(stored.card.encoder.columns, dtype=object)

    @property
    def _fitted(self) -> Model:
        """The model of a fitted estimator, with the present device, precision and cache."""
        from ucds.training.loaded import Model

        check_is_fitted(self)
        compute, stored = self._compute(), self.stored_
        if stored.card.making.method == "pcd":  # what learned by gradients may have used more
            compute = compute.used_by(stored.encoder.on(self.accelerator, self.precision))
        return Model(stored, compute)

    def _work(self, labelled: bool) -> Work[MethodSettings]:
        from ucds.config import choose_settings
        from ucds.training.run import make_work, require_able

        given = self.settings
        settings = choose_settings(self.method, self._role, given, labelled=labelled, tune=self.tune)
        read_clusters(self.n_clusters)
        options, compute = RunOptions(seed=_seed_of(self.random_state)), self._compute()
        require_able(settings, self.n_clusters, options, compute, labelled=labelled)
        return make_work(settings, options, compute)

    def _open(
        self,
        X: FolderOrArray,  # noqa: N803
        sample_domain: ArrayLike | None,
        settings: MethodSettings,
    ) -> tuple[Dataset, Encoder]:
        from ucds.data.columns import is_no_feature
        from ucds.encoders.encoder import Encoder
        from ucds.training.inputs import open_for_training

        # A copy of an encoder of the caller's own: fit changes no parameter of the estimator.
        own = copy.deepcopy(self.backbone) if isinstance(self.backbone, Encoder) else None
        if own is not None and self.weights != DEFAULT_WEIGHTS:
            raise InputError("`weights` are for a `backbone` by name: leave them out")
        if isinstance(X, str | Path):
            if sample_domain is not None:
                raise InputError("sample_domain is for arrays: the domains of a folder are its sub-folders")
            found = find_samples(X, by_domain=self._role == "source")
        else:
            vectors = self._validated(X, ensure_min_samples=2)
            names = getattr(self, "feature_names_in_", None)
            if others := list(filter(is_no_feature, () if names is None else names)):
                warn(f"columns that may be no features are clustered too: {', '.join(others)}")
            found = _with_domains(vectors, sample_domain, names)
        encoder = own or EncoderOptions(cast("str | None", self.backbone), self.weights)
        inputs = open_for_training(found, encoder, self._compute(), settings)
        return inputs.data, inputs.encoder

    def _open_fitted(self, X: FolderOrArray, side: Role) -> Dataset:  # noqa: N803
        model, source = self._fitted, cast("Source", X)
        if not isinstance(X, str | Path):
            if self.stored_.card.encoder.input_size is not None:
                raise InputError("this estimator was fitted on images: give a folder of images, not an array")
            source = self._validated(X, reset=False)
        return model.open(source, side)

    def _validated(self, X: FolderOrArray, **how: Any) -> NDArray[Any]:  # noqa: N803
        """Check an array or a data frame as scikit-learn does."""
        try:
            vectors: NDArray[Any] = validate_data(self, X, dtype=[np.float64, np.float32], **how)
        except ValueError as error:
            lines = str(error).splitlines()
            told = [line for line in lines if not line.startswith(("array=", "[", " "))]  # no printed array
            raise InputError(" ".join(told)) from None
        return vectors

    def _compute(self) -> Compute:
        reporter = terminal_reporter() if self.verbose else Quiet()
        cache = default_cache_dir() if self.cache is None else self.cache
        return Compute(self.accelerator, self.precision, cache, reporter)


def _parameters_of(stored: StoredModel) -> dict[str, Any]:
    """Return the parameters with which an estimator would make a model again."""
    from ucds.config import restore
    from ucds.encoders.spec import VECTORS

    card, making = stored.card, stored.card.making
    settings = restore(making.method, making.settings)
    found: dict[str, Any] = {
        "n_clusters": making.clusters,
        "backbone": None if card.encoder.name in VECTORS else stored.encoder,
        "method": making.method,
        "tune": settings.tune,
        "settings": settings,
        "random_state": making.seed,
        "precision": making.precision,
    }
    if card.tune == "full":
        kind, _, file = card.weights.partition(": ")  # "hub: ...", "file: NAME (...)", "none (...)"
        usual = NO_WEIGHTS if kind.startswith(NO_WEIGHTS) else DEFAULT_WEIGHTS
        found["backbone"] = card.encoder.name
        found["weights"] = file.rpartition(" (")[0] if kind == "file" else usual
    return found


def _seed_of(random_state: Any) -> int:
    """Return an integer as it is; draw one from any other random state of scikit-learn."""
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise InputError(f"random_state: {error}") from None
    return int(random_state) if isinstance(random_state, Integral) else int(generator.randint(2**31 - 1))


def _with_domains(
    vectors: NDArray[np.float32], sample_domain: ArrayLike | None, columns: Sequence[str] | None
) -> Samples:
    from ucds.data.vectors import VectorSamples

    if sample_domain is None:
        return VectorSamples(vectors, columns=columns)
    given = np.asarray(sample_domain)
    if given.shape != (len(vectors),):
        raise InputError(f"sample_domain must have one entry for each row: {len(vectors)}, not {given.shape}")
    if any(name is None or name != name for name in given.tolist()):  # only NaN differs from itself
        raise InputError("sample_domain holds NaN or None: name the domain of every sample")
    try:
        names, domain = np.unique(given, return_inverse=True)
    except TypeError:  # values of several kinds
        names, domain = np.unique(given.astype(str), return_inverse=True)
    of_each, domain_names = domain.astype(np.int64), tuple(str(name) for name in names)
    return VectorSamples(vectors, of_each, domain_names, columns=columns)
