"""What the two scikit-learn estimators have in common: parameters, inputs, prediction."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ucds.backbones import Backbone, identity_backbone
from ucds.choices import Accelerator, Precision, Recipe, Tune
from ucds.config import Config, default_tune
from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import UserError
from ucds.models import ClusteringModel
from ucds.training.launch import CacheOptions, open_for_prediction, open_for_training
from ucds.training.prediction import predict
from ucds.training.progress import Quiet, terminal_reporter
from ucds.training.runtime import Runtime
from ucds.training.session import Session
from ucds.training.stage import TrainingData

FolderOrArray = str | Path | ArrayLike


class ClusteringEstimator(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Parameters and prediction of both estimators; see :class:`ucds.SourceClustering`."""

    _several_domains: bool
    """Whether a folder given to ``fit`` holds one folder a domain."""

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        backbone: str | Backbone | None = None,
        weights: str = "default",
        recipe: Recipe = "ucds",
        tune: Tune | None = None,
        settings: dict[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        accelerator: Accelerator = "auto",
        precision: Precision = "32-true",
        cache: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.backbone = backbone
        self.weights = weights
        self.recipe = recipe
        self.tune = tune
        self.settings = settings
        self.random_state = random_state
        self.accelerator = accelerator
        self.precision = precision
        self.cache = cache
        self.verbose = verbose

    def predict(self, X: FolderOrArray) -> NDArray[np.int64]:  # noqa: N803  (scikit-learn's name)
        """Find the most probable cluster of each sample.

        Args:
            X: ``(n, d)`` vectors, or a folder of images (with one folder a domain if ``fit`` had so).

        Returns:
            ``(n,)`` int64 in ``[0, n_clusters)``.
        """
        check_is_fitted(self)
        return self._assign(self._open_fitted(X, with_domains=self._several_domains))

    @abstractmethod
    def _train(self, session: Session, backbone: Backbone, data: TrainingData) -> ClusteringModel:
        """Run the stages of this side."""

    def _fit(self, inputs: TrainingData, backbone: Backbone, session: Session) -> Self:
        self.model_ = self._train(session, backbone, inputs)
        self.backbone_ = backbone
        self.stages_ = session.results
        self.ids_ = inputs.samples.ids
        self.domain_names_ = inputs.samples.domain_names
        self.prototypes_ = self.model_.prototypes.detach().cpu().numpy().T
        self.proportions_ = session.results[-1].state["proportions"].cpu().numpy()
        self.labels_ = self._assign(inputs)
        return self

    def _session(self) -> Session:
        tune = self.tune or default_tune(self.recipe)
        config = Config.from_mapping({"recipe": self.recipe, "tune": tune} | (self.settings or {}))
        if not isinstance(self.n_clusters, (int, np.integer)) or self.n_clusters < 1:
            raise UserError(f"n_clusters must be an integer of at least 1, not {self.n_clusters!r}")
        seed = self.random_state
        if seed is None or isinstance(seed, np.random.RandomState):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return Session(self._runtime(int(seed)), config)

    def _runtime(self, seed: int = 0) -> Runtime:
        reporter = terminal_reporter() if self.verbose else Quiet()
        return Runtime(accelerator=self.accelerator, precision=self.precision, seed=seed, reporter=reporter)

    def _open(
        self,
        X: FolderOrArray,  # noqa: N803
        session: Session,
        sample_domain: ArrayLike | None = None,
    ) -> tuple[TrainingData, Backbone]:
        if isinstance(X, str | Path):
            if sample_domain is not None:
                raise UserError("sample_domain is for arrays: the domains of a folder are its sub-folders")
            if isinstance(self.backbone, Backbone):
                raise UserError("a backbone of your own takes arrays: name one to open a folder of images")
            inputs = open_for_training(
                Path(X),
                backbone=self.backbone,
                weights=self.weights,
                with_domains=self._several_domains,
                cache=self._cache_options(),
                reporter=session.runtime.reporter,
            )
            return inputs.data, inputs.backbone
        vectors = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
        data = TrainingData(_with_domains(vectors, sample_domain), VectorView())
        if self.backbone is None:
            return data, identity_backbone(vectors.shape[1])
        if isinstance(self.backbone, Backbone):
            return data, copy.deepcopy(self.backbone)  # fit changes no parameter of the estimator
        raise UserError("a named backbone is for folders of images: arrays are used as they are")

    def _open_fitted(self, X: FolderOrArray, *, with_domains: bool) -> TrainingData:  # noqa: N803
        if not isinstance(X, str | Path):
            if self.backbone_.spec.input_size is not None:
                raise UserError("this estimator was fitted on images: give a folder of them, not an array")
            vectors = validate_data(self, X, dtype=np.float32, reset=False)
            return TrainingData(VectorSamples(vectors), VectorView())
        return open_for_prediction(
            Path(X),
            self.backbone_.spec,
            with_domains=with_domains,
            cache=self._cache_options(),
            reporter=self._runtime().reporter,
        )

    def _feature_cache(self, data: TrainingData) -> Path | None:
        """Features of images are worth keeping; those of vectors in memory stay there."""
        images = len(data.view.input_shape) > 1
        return self._cache_options().place if images or self.cache is not None else None

    def _cache_options(self) -> CacheOptions:
        return CacheOptions(Path(self.cache) if self.cache is not None else None)

    def _assign(self, data: TrainingData) -> NDArray[np.int64]:
        runtime = self._runtime()
        model = self.model_.to(runtime.device)
        probabilities = predict(model, data.samples, data.view, runtime, 64)
        labels: NDArray[np.int64] = probabilities.argmax(-1).cpu().numpy()
        return labels


def _with_domains(vectors: NDArray[np.float32], sample_domain: ArrayLike | None) -> Samples:
    if sample_domain is None:
        return VectorSamples(vectors)
    given = np.asarray(sample_domain)
    if given.shape != (len(vectors),):
        raise UserError(f"sample_domain must have one entry a sample, ({len(vectors)},), not {given.shape}")
    names, domain = np.unique(given, return_inverse=True)
    return VectorSamples(vectors, domain.astype(np.int64), tuple(str(name) for name in names))
