"""The client's model as a scikit-learn estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ucds.choices import read_clusters
from ucds.data.content import texts_of
from ucds.errors import InputError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.estimator import ClusteringEstimator, FolderOrArray

if TYPE_CHECKING:
    from ucds.config import MethodSettings
    from ucds.data.dataset import Dataset
    from ucds.data.samples import Samples
    from ucds.encoders.encoder import Encoder
    from ucds.training.prepare import Training
    from ucds.training.work import Work


class TargetClustering(ClusteringEstimator):
    """Cluster unlabelled target samples with the help of a provider's labels.

    Parameters and fitted attributes are those of :class:`ucds.SourceClustering`. The backbone need not be the
    provider's.

    Example:
        >>> target = TargetClustering(n_clusters=10, random_state=0)
        >>> target.fit(vectors, source_labels=answers).labels_  # doctest: +SKIP
    """

    _role = "target"

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
            source_labels: the provider's labels: ``(n,)`` integers in ``[0, n_clusters)``, or any from 0 if
                the number of clusters is to be chosen, in the order of the samples, -1 for a sample that has
                none; or :class:`ucds.ClusterLabels`. ``None`` clusters the samples alone.

        Raises:
            InputError: an input, a label or a parameter cannot be used.

        Warns:
            UcdsWarning: only some samples have a label.
        """
        from ucds.target.train import fit_target

        def train(work: Work[MethodSettings], encoder: Encoder, data: Dataset) -> Training:
            labels = self._read_labels(source_labels, data.samples)
            return fit_target(work, encoder, data, self.n_clusters, labels)

        return self._fit(X, train)

    def _read_labels(
        self, source_labels: ArrayLike | ClusterLabels | None, samples: Samples
    ) -> ClusterLabels | None:
        ids, n = samples.ids, len(samples.listed)
        if source_labels is None:
            return None
        if isinstance(source_labels, ClusterLabels):
            return source_labels.align_with(samples)
        given = np.asarray(source_labels)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise InputError(f"source_labels must be {n} integers, not {given.dtype} of {given.shape}")
        given = given if samples.kept is None else given[samples.kept]
        rows = np.flatnonzero(given != -1)
        asked = read_clusters(self.n_clusters)
        clusters = asked if isinstance(asked, int) else int(given.max(initial=0)) + 1
        return ClusterLabels(texts_of(ids).take(rows), given[rows], clusters, "given")
