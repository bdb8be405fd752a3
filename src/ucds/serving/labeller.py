"""The model of the service: rows in, one integer for each row out, whatever else is in the batch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucds.choices import Accelerator
from ucds.data.dataset import View
from ucds.errors import InputError, UcdsWarning
from ucds.models import state_digest
from ucds.training.devices import choose_device
from ucds.training.inputs import stored_size, view_for
from ucds.training.model_file import StoredModel, load_model

Rows = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
Means = npt.NDArray[np.float32]


class ModelLabeller:
    """A source model that answers in batches of one fixed size.

    A row computed in batches of different sizes may differ in its last bits, and a near tie then has two
    answers. In batches of one size a row comes out the same to the bit, whatever the other rows are. A
    model for which that does not hold, because it takes statistics over its batch, is found when it is
    loaded, and answers one row at a time.

    Args:
        stored: model of role "source".
        device: device to compute on; the CPU if ``None``.
        batch_size: number of rows in every batch; 16 on a CPU and 64 on an accelerator if ``None``.

    Attributes:
        name: name of the model, part of each answer.
        digest: digest of the weights; the ledger keeps the answers of different models apart.
        n_clusters: number of clusters, K.
        row_shape: shape of one sample: ``(3, S, S)`` for images, ``(width,)`` for embeddings.
        dtype: type of the rows: uint8 for images, float32 for embeddings.
        batch_size: number of rows in every batch.
        privacy: guarantee of differential privacy that the model carries; ``None`` without one.
        mean_width: length of the mean from which a sample can be seen; ``None`` if all are seen alike.

    Raises:
        InputError: the batch size is not positive.

    Warns:
        UcdsWarning: the model's rows depend on each other.
    """

    def __init__(
        self, stored: StoredModel, device: torch.device | None = None, batch_size: int | None = None
    ) -> None:
        if batch_size is not None and batch_size < 1:
            raise InputError(f"the model must take at least one sample at a time, not {batch_size}")
        spec = stored.card.backbone
        self.name = stored.card.name
        self.n_clusters = stored.card.n_clusters
        self.privacy = None if stored.card.privacy is None else str(stored.card.privacy)
        self.digest = state_digest(stored.model)[:32]
        self.mean_width = spec.width if stored.card.recentres else None
        self._device = device or torch.device("cpu")
        self._view: View = view_for(spec)
        self._model = stored.model.to(self._device).eval()
        self.row_shape: tuple[int, ...] = (spec.width,)
        self.dtype: npt.DTypeLike = np.float32
        if spec.input_size is not None:
            self.row_shape, self.dtype = (3, stored_size(spec), stored_size(spec)), np.uint8
        self.batch_size = batch_size or (16 if self._device.type == "cpu" else 64)
        if self.batch_size > 1 and not self._rows_are_independent():
            warnings.warn(
                f"model {self.name!r} looks at its whole batch, so it answers one sample at a time, slowly",
                UcdsWarning,
                stacklevel=2,
            )
            self.batch_size = 1

    @classmethod
    def load(
        cls, run: Path, accelerator: Accelerator = "auto", batch_size: int | None = None
    ) -> ModelLabeller:
        """Read the model of a finished run.

        Raises:
            InputError: the run holds no model of role "source", or the machine lacks the device.
            DamagedFileError: the model file cannot be read.
        """
        stored = load_model(run, role="source")
        return cls(stored, choose_device(accelerator), batch_size)

    def label(self, rows: Rows, means: Means | None = None) -> Labels:
        """Label ``(batch_size, *row_shape)`` rows: ``(batch_size,)`` in ``[0, n_clusters)``.

        Args:
            rows: samples.
            means: ``(batch_size, mean_width)`` mean from which each is seen; NaN stands for the model's own.
        """
        return self._probabilities(rows, means).argmax(-1).cpu().numpy()

    def mean(self, rows: Rows) -> Means:
        """Compute the mean ``(mean_width,)`` of the unit features of any number of rows."""
        total = torch.zeros(self.mean_width or 0, dtype=torch.float64, device=self._device)
        buffer = np.zeros((self.batch_size, *self.row_shape), self.dtype)
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            buffer[: len(part)] = part
            with torch.inference_mode():
                features = self._model.encoder.backbone_features(self._inputs(buffer))
            total += features[: len(part)].double().sum(0)
        return np.asarray((total / len(rows)).float().cpu().numpy())

    def _probabilities(self, rows: Rows, means: Means | None = None) -> Tensor:
        # The same steps as where labels are made offline, so that a tie is decided alike.
        with torch.inference_mode():
            inputs = self._inputs(rows)
            seen = None if means is None else torch.from_numpy(means).to(self._device)
            logits: Tensor = self._model(inputs, seen).logits
            return logits.float().softmax(-1)

    def _inputs(self, rows: Rows) -> Tensor:
        return self._view.test(torch.from_numpy(rows).to(self._device))

    def _rows_are_independent(self) -> bool:
        """Return whether a row's answer stays when its place and the other rows change."""
        generator = np.random.default_rng(0)
        shape = (self.batch_size, *self.row_shape)
        if self.dtype is np.uint8:
            rows: Rows = generator.integers(0, 256, shape, np.uint8)
        else:
            rows = generator.standard_normal(shape).astype(np.float32)
        alone = np.zeros_like(rows)
        alone[-1] = rows[0]
        together, apart = self._probabilities(rows)[0], self._probabilities(alone)[-1]
        return torch.allclose(together, apart, rtol=1e-4, atol=1e-6)
