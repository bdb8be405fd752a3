"""The step of bulk work: rows of images or embeddings in, rows of features or clusters out.

A step is a function of one shard's rows. It can be pickled, so that a loop in this process and the workers of
an engine run the same one. Samples go through a network in batches that begin with the shard, and a file that
cannot be used takes no place in a batch: so the results do not depend on who runs the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ucds.backbones import Backbone
from ucds.bulk.places import read_image
from ucds.bulk.shards import Rows, texts
from ucds.choices import Accelerator
from ucds.data.ahead import map_ahead, processors
from ucds.data.content import content_key
from ucds.data.decode import ByteArray, UnusableImageError, decode_image
from ucds.errors import InputError
from ucds.models import ClusteringModel
from ucds.training.devices import choose_device
from ucds.training.encoding import FrozenEncoder
from ucds.training.inputs import stored_size, view_for
from ucds.training.prediction import Decisions, evaluation_mode, judge

_CARRIED = ("sample", "domain", "content")


class Step(Protocol):
    """Function of rows that can be pickled.

    Its result has as many rows. The column ``problem`` names the reason where a sample could not be used, and
    is empty elsewhere; the other columns of such a row mean nothing.
    """

    def __call__(self, rows: Rows) -> Rows:
        """Work on rows, see :data:`ucds.bulk.shards.Rows`.

        Raises:
            InputError: the rows hold samples of a kind that the step does not take.
        """
        ...


class EncodeStep:
    """Decodes images, and computes their features under a frozen encoder.

    Images are read and decoded in threads, while the encoder computes.

    Args:
        backbone: encoder of images.
        accelerator: device to compute on.
        batch_size: number of images computed at a time.
        readers: number of threads that read; one a processor if ``None``.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        accelerator: Accelerator = "auto",
        batch_size: int = 64,
        readers: int | None = None,
    ) -> None:
        self.backbone, self.accelerator = backbone, accelerator
        self.batch_size, self.readers = batch_size, readers
        self._size, self._view = stored_size(backbone.spec), view_for(backbone.spec)

    @cached_property
    def _device(self) -> torch.device:
        device = choose_device(self.accelerator)
        self.backbone.module.to(device)
        return device

    @cached_property
    def _encode(self) -> FrozenEncoder:
        return FrozenEncoder(self.backbone, self._device)

    def __call__(self, rows: Rows) -> Rows:
        """Return ``features`` ``(n, width)`` and ``content`` beside the samples; see :class:`Step`."""
        if "features" in rows:
            raise InputError("an encoder takes images, not embeddings")
        n = len(rows["sample"])
        features = np.zeros((n, self.backbone.spec.width), np.float32)
        content, problem = texts([""] * n), texts([""] * n)
        with ThreadPoolExecutor(self.readers or processors()) as pool:
            images = self._usable(self._load_ahead(pool, rows), content, problem)
            while batch := list(islice(images, self.batch_size)):
                index, pixels = zip(*batch, strict=True)
                stacked = torch.from_numpy(np.stack(pixels)).to(self._device)
                features[list(index)] = self._encode(self._view.test(stacked))
        return _carried(rows) | {"content": content, "problem": problem, "features": features}

    def _load_ahead(self, pool: ThreadPoolExecutor, rows: Rows) -> Iterator[tuple[str, ByteArray] | str]:
        return map_ahead(pool, lambda i: self._load(rows, i), range(len(rows["sample"])), 2 * self.batch_size)

    def _load(self, rows: Rows, i: int) -> tuple[str, ByteArray] | str:
        """Return content key and pixels of an image, or the reason why it cannot be used."""
        try:
            if "bytes" in rows:
                data = rows["bytes"][i]
            else:
                data = read_image(rows["path"][i], int(rows["offset"][i]), int(rows["length"][i]))
            return content_key(data).hex(), decode_image(data, self._size)
        except UnusableImageError as error:
            return error.reason

    @staticmethod
    def _usable(
        loaded: Iterator[tuple[str, ByteArray] | str], content: npt.NDArray[Any], problem: npt.NDArray[Any]
    ) -> Iterator[tuple[int, ByteArray]]:
        """Yield position and pixels of each image that can be used, and note keys and problems of all."""
        for i, found in enumerate(loaded):
            if isinstance(found, str):
                problem[i] = found
            else:
                content[i], pixels = found
                yield i, pixels


class AssignStep:
    """Finds the clusters of images or of features with a finished model.

    Args:
        head: layers above the backbone.
        answer: function from the clusters of m samples to the columns of the result; it must be one of a
            module, to be pickled.
        encode: step from images to features; ``None`` for a model of embeddings.
        batch_size: number of samples computed at a time.
        accelerator: device to compute on.
    """

    def __init__(
        self,
        head: ClusteringModel,
        answer: Callable[[Decisions], Rows],
        encode: EncodeStep | None,
        *,
        batch_size: int = 64,
        accelerator: Accelerator = "auto",
    ) -> None:
        self.head, self.answer, self.encode = head, answer, encode
        self.batch_size, self.accelerator = batch_size, accelerator

    @cached_property
    def _device(self) -> torch.device:
        device = choose_device(self.accelerator)
        self.head.to(device)
        return device

    def __call__(self, rows: Rows) -> Rows:
        """Return the columns of the answer beside the samples; see :class:`Step`."""
        if "features" not in rows:
            if self.encode is None:
                raise InputError(f"this model takes embeddings of width {self.head.spec.width}, not images")
            rows = self.encode(rows)
        features = rows["features"]
        if features.shape[1] != self.head.spec.width:
            raise InputError(
                f"these are vectors of width {features.shape[1]}; the model takes {self.head.spec.width}"
            )
        problem = rows.get("problem", texts([""] * len(features)))
        good = np.flatnonzero(problem == "")
        found = self.answer(self._decide(features[good]))
        answers = {name: _spread(values, good, len(features)) for name, values in found.items()}
        return _carried(rows) | {"problem": problem} | answers

    def _decide(self, features: npt.NDArray[np.float32]) -> Decisions:
        found = [Decisions(torch.zeros(0, dtype=torch.int64), torch.zeros(0))]  # if no sample can be used
        with evaluation_mode(self.head):
            for start in range(0, len(features), self.batch_size):
                inputs = torch.from_numpy(features[start : start + self.batch_size]).to(self._device)
                clusters, confidence = judge(self.head, self.head(inputs))
                found.append(Decisions(clusters.cpu(), confidence.cpu()))
        return Decisions(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _carried(rows: Rows) -> Rows:
    return {name: rows[name] for name in _CARRIED if name in rows}


def _spread(values: npt.NDArray[Any], good: npt.NDArray[np.int64], n: int) -> npt.NDArray[Any]:
    spread = np.zeros((n, *values.shape[1:]), values.dtype)
    spread[good] = values
    return spread
