"""What is attacked: a model in this process, or a label service; both give one integer for each sample."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ucds.errors import RefusedError
from ucds.labels.client import LabelClient, OverBudgetError
from ucds.labels.questions import Body, body_of_images, body_of_rows
from ucds.labels.wire import ServiceInfo
from ucds.training.inputs import view_for
from ucds.training.model_file import StoredModel
from ucds.training.runtime import Runtime

Labels = NDArray[np.int64]
_BATCH = 64


class Subject(Protocol):
    """Answers questions with labels.

    Attributes:
        name: name of the model.
        n_clusters: number of clusters, K.
        queries: number of samples that were asked about so far.
    """

    name: str
    n_clusters: int
    queries: int

    def ask(self, rows: Tensor) -> Labels:
        """Label ``(b, 3, S, S)`` uint8 images or ``(b, d)`` float32 vectors: ``(b,)``."""


class ModelSubject:
    """A model in this process, which answers as its label service would."""

    def __init__(self, stored: StoredModel, runtime: Runtime) -> None:
        self.name, self.n_clusters, self.queries = stored.card.name, stored.card.n_clusters, 0
        self._model, self._device = stored.model.to(runtime.device).eval(), runtime.device
        self._view = view_for(stored.card.backbone)

    def ask(self, rows: Tensor) -> Labels:
        """Label rows; see :class:`Subject`."""
        self.queries += len(rows)
        with torch.inference_mode():
            parts = [
                self._model(self._view.test(part.to(self._device))).logits.argmax(1).cpu()
                for part in torch.split(rows, _BATCH)
            ]
        return np.asarray(torch.cat(parts).numpy(), dtype=np.int64)


class ServiceSubject:
    """A label service; every changed copy of a sample counts against the key's budget.

    Args:
        client: client of the service.
        info: answer of the service about its model and limits.
    """

    def __init__(self, client: LabelClient, info: ServiceInfo) -> None:
        self.name, self.n_clusters, self.queries = info.model, info.n_clusters, 0
        self._client, self._batch = client, min(_BATCH, info.max_batch)
        self._most_bytes = info.max_request_bytes

    def ask(self, rows: Tensor) -> Labels:
        """Label rows; see :class:`Subject`.

        Raises:
            RefusedError: the service refuses the request or a sample, or the key's budget does not cover it.
            ServiceUnavailableError: the service cannot be reached, or could not answer in time.
        """
        before = self.queries
        self.queries += len(rows)
        try:
            return np.concatenate([self._ask(part) for part in torch.split(rows, self._batch)])
        except OverBudgetError:
            raise RefusedError(
                f"the key's budget ended after {before:,} queries of the audit: raise it, or audit with "
                "--quick"
            ) from None

    def _ask(self, rows: Tensor) -> Labels:
        """Label the rows by one request, or by several where they are too long for one."""
        body = _body(rows)
        if len(rows) > 1 and len(body.content) > self._most_bytes:
            return np.concatenate([self._ask(half) for half in rows.tensor_split(2)])
        answer = self._client.ask(body, len(rows))
        if answer.unusable:
            reason = answer.unusable[0].reason
            raise RefusedError(f"the service cannot use a sample ({reason}): audit without such samples")
        return np.array(answer.labels, dtype=np.int64)


def _body(rows: Tensor) -> Body:
    if rows.ndim == 2:
        return body_of_rows(rows.numpy())
    return body_of_images(_pictures(rows))


def _pictures(rows: Tensor) -> Sequence[bytes]:
    """Write images as files without loss."""
    files = []
    for row in rows:
        file = io.BytesIO()
        Image.fromarray(row.permute(1, 2, 0).contiguous().numpy()).save(file, "PNG", compress_level=1)
        files.append(file.getvalue())
    return files
