"""Opens images for training through their features, which are computed in bulk; for both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ucds.bulk.engines import BulkOptions
from ucds.bulk.features import are_features, encode
from ucds.bulk.finding import find_shards
from ucds.bulk.places import Place
from ucds.bulk.shards import Rows, Shard
from ucds.choices import Role
from ucds.config import MethodSettings
from ucds.data.cache import RowStore
from ucds.data.columns import Keys, Texts
from ucds.data.content import fingerprint
from ucds.data.dataset import Dataset
from ucds.data.features import FeatureSamples
from ucds.data.shards import SHARD_SUFFIX
from ucds.data.sources import Source, place_of
from ucds.data.table_columns import DOMAIN_NAME
from ucds.data.views import VectorView
from ucds.errors import InputError
from ucds.math.arrays import IntArray
from ucds.training.devices import choose_device
from ucds.training.encoding import FrozenEncoder
from ucds.training.features import feature_store
from ucds.training.inputs import Inputs
from ucds.training.options import CacheOptions, EncoderOptions
from ucds.training.processes import started_by_torchrun
from ucds.training.progress import Reporter


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images whose features have been computed; only their names and content keys are held.

    Attributes:
        ids: id of each image.
        domain: ``(n,)`` int64 positions in ``domain_names``.
        domain_names: names of the domains, sorted.
        keys: content key of each image.
    """

    ids: Sequence[str]
    domain: IntArray
    domain_names: tuple[str, ...]
    keys: Keys

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images, their ids and domains."""
        return fingerprint(self.keys, self.ids, self.domain, self.domain_names, "encoded images")


def check_bulk(settings: MethodSettings, bulk: BulkOptions | None) -> None:
    """Make sure, before any work, that a run can take its features from bulk work, if it is to.

    Args:
        settings: settings of the method.
        bulk: engine, and how it works; ``None`` without bulk work.

    Raises:
        InputError: the encoder is to be trained, or torchrun has started several processes.
    """
    if bulk is None:
        return
    if settings.tune == "full":
        raise InputError("--engine computes the features of a frozen encoder: leave it out, or --tune full")
    if started_by_torchrun() is not None:
        raise InputError("--engine is for a run that is started once: leave out torchrun")


def open_in_bulk(
    source: Source,
    side: Role,
    run: Path,
    encoder: EncoderOptions,
    cache: CacheOptions,
    bulk: BulkOptions,
    reporter: Reporter,
    domains: Sequence[str] | None = None,
) -> Inputs:
    """Compute the features of images in bulk, and open them as the inputs of a training run.

    The shards lie in a folder beside the run folder, ``RUN.features``. Their features are brought into the
    cache, where training reads them at random as it reads those that it has computed itself.

    Args:
        source: images, see :func:`ucds.bulk.finding.find_shards`; or a folder of features that
            :func:`ucds.features` computed with this encoder, for a source by domain.
        side: side that trains; for a source a folder holds one folder a domain.
        run: run folder.
        encoder: encoder for images.
        cache: place of the features.
        bulk: engine, and how it works.
        reporter: receives progress messages.
        domains: names of the domains to take; all if ``None``.

    Raises:
        InputError: images, encoder or folder cannot be used, or a domain is unknown.
        NoSpaceError: the folder or the cache cannot be written.
    """
    backbone, by_domain = encoder.build(), side == "source"
    place = source
    if not are_features(source, backbone):
        shards = find_shards(source, bulk.shard_size, by_domain=by_domain, domains=domains)
        beside = Place.of(f"{run}.features", source)
        encode(backbone, shards, beside, bulk, reporter)
        place = str(beside)
    encoded = find_shards(place, bulk.shard_size, by_domain=by_domain)
    store = feature_store(FrozenEncoder(backbone, choose_device(bulk.accelerator)), cache.directory)
    images = _keep(_rows(encoded, _name_of(source), domains), store)
    if unknown := sorted(set(domains or ()) - set(images.domain_names)):
        raise InputError(f"{source} has no images of the domain {unknown[0]!r}")
    return Inputs(Dataset(FeatureSamples(images, store), VectorView()), backbone)


def _name_of(source: Source) -> str:
    """Name the domain of samples that are of one, as :mod:`ucds.data.folders` does."""
    path = place_of(source)
    if path is None:
        return "images"
    if path.is_dir():
        return path.resolve().name or "images"
    return path.stem if path.suffix == SHARD_SUFFIX else "images"


def _rows(shards: Sequence[Shard], name: str, domains: Sequence[str] | None) -> Iterator[Rows]:
    """Read shards of features, with the domain of each sample, and leave out other domains."""
    for shard in shards:
        rows = shard.rows()
        rows.setdefault(DOMAIN_NAME, np.full(len(shard), name, dtype=object))
        if domains is not None:
            chosen = np.isin(rows[DOMAIN_NAME].astype(str), list(domains))
            rows = {column: values[chosen] for column, values in rows.items()}
        yield rows


def _keep(shards: Iterator[Rows], store: RowStore) -> EncodedImages:
    """Bring features into the store, where it lacks them or its rows are damaged, and list the samples."""
    ids, keys, domain = list[str](), list[bytes](), list[IntArray]()
    numbers: dict[str, int] = {}  # of the domains, in the order in which they come
    for rows in shards:
        found = [bytes.fromhex(key) for key in rows["content"]]
        known = store.rows_of(found)
        store.find_damaged(known[known >= 0])
        store.append(found, rows["features"])
        ids += rows["sample"].tolist()
        keys += found
        of_each = [numbers.setdefault(name, len(numbers)) for name in rows[DOMAIN_NAME]]
        domain.append(np.array(of_each, np.int64))
    names = sorted(numbers)
    place = np.argsort([numbers[name] for name in names])  # of each number among the sorted names
    return EncodedImages(Texts(ids), place[np.concatenate(domain)], tuple(names), Keys.of(keys))
