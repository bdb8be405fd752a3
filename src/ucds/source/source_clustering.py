"""The provider's model as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from numpy.typing import ArrayLike

from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.estimator import ClusteringEstimator, FolderOrArray


class SourceClustering(ClusteringEstimator):
    """Cluster unlabelled samples of several domains with shared prototypes.

    Args:
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose from
            the features of the frozen encoder (docs/consensus.md).
        backbone: name of an encoder for folders of images (the one in the package if ``None``), or an
            :class:`ucds.Encoder` of your own for folders or arrays.
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
        prototypes_: ``(n_clusters_, width)`` prototypes, shared by all domains; the setting
            ``bottleneck_width`` says the width.
        proportions_: ``(n_domains, n_clusters_)`` sizes of the clusters in each domain.
        domain_names_: ``(n_domains,)`` names of the domains, in the order of the proportions.
        stored_: the model with its description, as :meth:`save` writes it.
        stages_: results of the stages of the training.
        n_features_in_: width of the vectors, when ``fit`` was given an array.
        feature_names_in_: ``(n_features_in_,)`` names of the columns, when it was given a data frame.

    After :meth:`load` there are no ``labels_``, ``ids_`` and ``stages_``: they belong to a training.

    Example:
        >>> import numpy as np
        >>> from ucds import SourceClustering
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat([[9.0, 0], [0, 9], [-9, -9]], 20, axis=0) + rng.normal(size=(60, 2))
        >>> hospital = np.tile(["north", "south"], 30)
        >>> source = SourceClustering(n_clusters=3, random_state=0).fit(X, sample_domain=hospital)
        >>> source.proportions_.round(2)
        array([[0.33, 0.33, 0.33],
               [0.33, 0.33, 0.33]], dtype=float32)
        >>> source.label(X[:30], provider="hospital group").labels.shape
        (30,)
    """

    _role = "source"

    def fit(
        self,
        X: FolderOrArray,  # noqa: N803  (scikit-learn's name)
        y: Any = None,
        *,
        sample_domain: ArrayLike | None = None,
    ) -> Self:
        """Learn prototypes and an encoder from unlabelled samples.

        Args:
            X: ``(n, d)`` vectors, or a folder with one folder of images per domain.
            y: ignored.
            sample_domain: ``(n,)`` domain of each vector, as any values; if ``None``, all are of one domain.

        Raises:
            InputError: an input or a parameter cannot be used.
        """
        from ucds.source.train import fit_source

        return self._fit(X, partial(fit_source, n_clusters=self.n_clusters), sample_domain)

    def label(self, X: FolderOrArray, *, provider: str = "source") -> ClusterLabels:  # noqa: N803
        """Label a client's samples: one integer per sample, and nothing else.

        The labels are those of :func:`ucds.label`, which takes the samples as one domain and centres them on
        their own mean; :meth:`predict` treats each sample by itself.

        Args:
            X: ``(n, d)`` vectors, or a folder of images at any depth.
            provider: name of the provider in the labels.

        Raises:
            InputError: the samples are not of the kind that ``fit`` was given.
        """
        from ucds.source.label import label_opened

        return label_opened(self._fitted, self._open_fitted(X, "target"), provider)
