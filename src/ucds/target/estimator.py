"""The target owner's model as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ucds.backbones import Backbone
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.target.train import train_target
from ucds.training.estimator import ClusteringEstimator, FolderOrArray
from ucds.training.session import Session
from ucds.training.stage import TrainingData


class TargetClustering(ClusteringEstimator):
    """Cluster unlabelled target samples with the help of a provider's labels.

    Parameters and fitted attributes are those of :class:`ucds.SourceClustering`; the backbone may be
    any, whatever the provider's is.

    Example:
        >>> target = TargetClustering(n_clusters=10, random_state=0)
        >>> target.fit(vectors, source_labels=answers).labels_  # doctest: +SKIP
    """

    _several_domains = False

    def fit(
        self,
        X: FolderOrArray,  # noqa: N803  (scikit-learn's name)
        y: Any = None,
        *,
        source_labels: ArrayLike | ClusterLabels | None = None,
    ) -> Self:
        """Train a model on the samples, guided by the labels.

        Args:
            X: ``(n, d)`` vectors, or a folder of images at any depth.
            y: ignored.
            source_labels: the provider's answers: ``(n,)`` integers in ``[0, n_clusters)`` in the order
                of the samples, or :class:`ucds.labels.cluster_labels.ClusterLabels`. Without them the
                samples are clustered alone.

        Raises:
            UserError: (a ``ValueError``) inputs, labels or parameters that cannot be used.
        """
        session = self._session()
        data, backbone = self._open(X, session)
        self._answers = self._read_labels(source_labels, data.samples.ids)
        try:
            return self._fit(data, backbone, session)
        finally:
            del self._answers

    def _read_labels(
        self, source_labels: ArrayLike | ClusterLabels | None, ids: tuple[str, ...]
    ) -> ClusterLabels | None:
        if source_labels is None:
            return None
        if not isinstance(source_labels, ClusterLabels):
            source_labels = ClusterLabels(ids, np.asarray(source_labels), self.n_clusters, "given")
        return source_labels

    def _train(self, session: Session, backbone: Backbone, data: TrainingData) -> ClusteringModel:
        cache = self._feature_cache(data)
        return train_target(session, backbone, data, self._answers, n_clusters=self.n_clusters, cache=cache)
