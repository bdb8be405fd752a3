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

    Args:
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose from
            the features of the frozen encoder (docs/consensus.md).
        backbone: name of an encoder for folders of images (the one in the package if ``None``), or an
            :class:`ucds.Encoder` of your own for folders or arrays. It need not be the provider's encoder.
        weights: weights of the named encoder: ``"default"``, ``"none"`` or a file.
        method: ``"consensus"`` (docs/consensus.md), or ``"pcd"``, the paper's method; if ``None``, the method
            of the settings, or ``"consensus"`` without settings.
        tune: ``"full"`` trains everything, ``"head"`` only the new layers on frozen features; ``None`` is
            ``"head"`` for the consensus method and ``"full"`` for the paper's.
        settings: :class:`ucds.ConsensusSettings` or :class:`ucds.PCDSettings`, or settings of the method by
            name, see ``ucds settings``.
        random_state: seed of every random choice, or a ``RandomState`` that a seed is drawn from; equal
            integers give equal models; ``None`` gives another model at each fit.
        accelerator: device to compute on, see :class:`ucds.Compute`.
        precision: precision of forward passes: ``"32-true"`` or ``"bf16-mixed"``.
        cache: folder of decoded images and frozen features; the user's cache folder if ``None``.
        verbose: whether to show progress.

    Attributes:
        labels_: ``(n,)`` cluster of each training sample, -1 for an image that cannot be used.
        ids_: ``(n,)`` ids of the training samples, in the same order.
        n_clusters_: number of clusters of the model.
        prototypes_: ``(n_clusters_, width)`` prototypes; the setting ``bottleneck_width`` says the width.
        proportions_: ``(1, n_clusters_)`` sizes of the clusters.
        domain_names_: ``(1,)`` name of the samples' domain.
        stored_: the model with its description, as :meth:`save` writes it.
        stages_: results of the stages of the training.
        n_features_in_: width of the vectors, when ``fit`` was given an array.
        feature_names_in_: ``(n_features_in_,)`` names of the columns, when it was given a data frame.

    After :meth:`load` there are no ``labels_``, ``ids_`` and ``stages_``: they belong to a training.

    Example:
        >>> import numpy as np
        >>> from ucds import TargetClustering
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat([[9.0, 0], [0, 9], [-9, -9]], 20, axis=0) + rng.normal(size=(60, 2))
        >>> answers = np.repeat([2, 0, 1], 20)  # a provider's; -1 where there is none
        >>> target = TargetClustering(n_clusters=3, random_state=0).fit(X, source_labels=answers)
        >>> np.bincount(target.labels_)
        array([20, 20, 20])
        >>> target.predict_proba(X).shape, target.transform(X).shape
        ((60, 3), (60, 256))
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
            source_labels: the provider's labels: :class:`ucds.ClusterLabels`, or ``(n,)`` integers in the
                order of the samples, in ``[0, n_clusters)`` (any from 0 if ucds chooses the number of
                clusters); -1 stands for a sample without a label. ``None`` clusters the samples alone.

        Raises:
            InputError: an input, a label or a parameter cannot be used.

        Warns:
            UcdsWarning: only some samples have a label.
        """
        from ucds.target.train import fit_target

        def train(work: Work[MethodSettings], encoder: Encoder, data: Dataset) -> Training:
            labels = self._read_labels(source_labels, data.samples)
            return fit_target(work, encoder, data, self.n_clusters, labels)

        return self._fit(X, train, labelled=source_labels is not None)

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
