"""Features of images as samples: those in the cache, and a folder of features.

The folder is what ``ucds features`` writes, and every command takes it in place of the images.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from ucds.data.content import Column, content_key, require_ids, texts_of
from ucds.data.decode import PIXELS_VERSION, ByteArray, UnusableImageError, decode_image
from ucds.data.folders import FEATURES_FILE, require_domains
from ucds.data.image_files import MAX_FILE_BYTES
from ucds.data.parts import DESCRIPTION, Described, Part, PartStore, Rows, read_description
from ucds.data.samples import Samples
from ucds.errors import DamagedFileError, InputError, warn
from ucds.files import read_json
from ucds.math.arrays import FloatArray, IntArray, processors
from ucds.received import open_inside

ENCODER_FILE = "encoder.safetensors"
_GREY = 128
_LARGEST = 256  # pixels of a side


class FeatureSamples(Samples):
    """The features of other samples, with the same ids, domains and keys.

    The samples are not read. The store holds the features of every one under its content key.
    """

    kind = "features"

    def __init__(self, samples: Samples, store: PartStore) -> None:
        form = f"features {store.path.name}"
        super().__init__(samples.ids, samples.domain, samples.domain_names, form, samples.readable_paths)
        self.keys, self._store, self._rows = samples.keys, store, store.rows_of(samples.keys)
        if (self._rows < 0).any():
            raise InputError(f"the cache {store.path} lost features while they were computed: run again")

    def read(self, index: IntArray) -> FloatArray:
        """Read the features ``(b, width)`` float32 of the samples at positions ``index``."""
        return self._store.read(self._rows[np.asarray(index, np.int64)])


class Manifest(BaseModel):
    """Description of a folder of features."""

    format: Literal["ucds-features/2"] = "ucds-features/2"  # name of this format
    encoder: dict[str, Any]  # description of the encoder, as a model file has it
    origin: str  # origin of the encoder's weights, in words
    weights: str  # digest of these weights, which lie beside the parts
    computed_by: str  # library that computed the features
    size: int  # side in pixels of the decoded images that the encoder saw a crop of
    decoder: int  # version of the way of decoding
    root: str  # folder of the images, or its address
    domain: str  # name of the domain, if the images are taken as one
    parts: Annotated[list[str], Field(fail_fast=True)]  # mark of the images that each part was made from

    def same_encoder(self, other: Manifest) -> bool:
        """Return whether two folders hold features of the same encoder, computed in the same way."""
        names = {"encoder", "weights", "computed_by", "size", "decoder"}
        return self.model_dump(mode="json", include=names) == other.model_dump(mode="json", include=names)


class FeaturePart(Described):
    """Description of a part of features."""

    made_of: str
    ids: Annotated[list[str], Field(fail_fast=True)]
    paths: Annotated[list[str], Field(fail_fast=True)] | None  # below the root, if these are not the ids
    domains: Annotated[list[str], Field(fail_fast=True)] | None
    skipped: Annotated[list[tuple[str, str]], Field(fail_fast=True)]


def part_path(folder: Path, number: int) -> Path:
    """Return the path of a part, without suffix."""
    return folder / f"part-{number:06d}"


def read_manifest(folder: Path) -> Manifest:
    """Read the description of a folder of features."""
    return read_json(folder / FEATURES_FILE, Manifest, "description of features")


class FeatureFolder(Samples):
    """Features of images in a folder, read from the disk at every use.

    Domains are those that a table named, or else the folders that the images lay in; images that lay in none
    are left out with a warning.

    Attributes:
        manifest: description of the folder.
        rows: features of all images of the folder.
    """

    kind = "features"

    def __init__(self, folder: Path, *, by_domain: bool, domains: Sequence[str] | None = None) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        parts = [_read_part(folder, number, self.manifest) for number in range(len(self.manifest.parts))]
        self.rows = Rows([part for part, _ in parts if len(part)], np.float32)
        ids = [name for _, described in parts for name in described.ids]
        require_ids(ids)
        paths = [path for _, described in parts for path in described.paths or described.ids]
        named = [name for _, described in parts for name in described.domains or ()] or None
        if by_domain:
            of_each = named or _folders_of(paths)
            self._places, domain, names = _by_domain(folder, of_each, domains)
        elif named is not None and len(set(named)) > 1:
            raise InputError(f"{folder} holds {len(set(named))} domains, but a target is one domain")
        else:
            self._places, domain = np.arange(len(ids)), np.zeros(len(ids), np.int64)
            names = (named[0] if named else self.manifest.domain,)
        form = f"images {self.manifest.size} {PIXELS_VERSION}"  # the fingerprint is that of the images
        kept_ids, kept_paths = (texts_of(texts).take(self._places) for texts in (ids, paths))
        super().__init__(kept_ids, domain, names, form, kept_paths)
        self.keys = Column[bytes](np.concatenate([part.keys.array for part, _ in parts])[self._places])

    def read(self, index: IntArray) -> FloatArray:
        """Read the features ``(b, width)`` float32 of the images at positions ``index``."""
        return self.rows.take(self._places[np.asarray(index, np.int64)])

    def find_pictures(self, root: Path | None, size: int | None = None) -> Pictures:
        """Return the images below a root, or where they were read, whether or not any is left."""
        base = Path(self.manifest.root) if root is None else root
        return Pictures(base, self.readable_paths, self.keys, size or min(self.manifest.size, _LARGEST))


@dataclass(frozen=True)
class Pictures:
    """Images of a folder of features, squares of ``size`` pixels, which are decoded when they are read.

    An id may name any file, so a file is shown only if the features were computed from its content.
    """

    root: Path
    paths: Sequence[str]  # below the root
    keys: Sequence[bytes]  # of their contents
    size: int

    @property
    def are_gone(self) -> bool:
        """Whether none of them is left."""
        return not any(map(self.is_there, range(len(self.paths))))

    def is_there(self, position: int) -> bool:
        """Return whether a sample has a file that is not a link and lies below the root."""
        with suppress(OSError, DamagedFileError):
            open_inside(self.root, self.paths[position]).close()
            return True
        return False

    def read(self, index: IntArray) -> ByteArray:
        """Read the images at positions ``index``: ``(b, 3, size, size)`` uint8, grey if one is missing."""
        # Remarks of the image library are silenced.
        with ThreadPoolExecutor(processors()) as pool, warnings.catch_warnings(action="ignore"):
            pixels = list(pool.map(self._decode, index.tolist()))
        return np.array(pixels, np.uint8).reshape(-1, 3, self.size, self.size)

    def _decode(self, position: int) -> ByteArray:
        with suppress(OSError, DamagedFileError, UnusableImageError):
            with open_inside(self.root, self.paths[position]) as file:
                data = file.read(MAX_FILE_BYTES)
            if content_key(data) == self.keys[position]:
                return decode_image(data, self.size)
        return np.full((3, self.size, self.size), _GREY, np.uint8)


def _read_part(folder: Path, number: int, manifest: Manifest) -> tuple[Part, FeaturePart]:
    """Open a part, after a check of all its rows."""
    path = part_path(folder, number)
    described = read_description(path, FeaturePart) if path.with_suffix(DESCRIPTION).exists() else None
    if described is None or described.made_of != manifest.parts[number]:
        raise InputError(f"{folder} does not hold all features yet: run the same `ucds features` again")
    part = Part(path, described)
    named = {len(one or described.ids) for one in (described.ids, described.paths, described.domains)}
    if named != {len(part)} or part.shape[1:] != (manifest.encoder.get("width"),):
        raise DamagedFileError(f"{path}{DESCRIPTION} does not fit its rows: compute the features again")
    part.check()
    return part, described


def _folders_of(paths: Sequence[str]) -> list[str | None]:
    """Return the domain folder of each path; ``None`` for an image outside all of them.

    As in a folder of images, a wrapper around the domains is skipped (``PACS/kfold/<domain>/<class>/..``).
    """
    split = [path.split("/") for path in paths]
    wrapped = all(len(parts) >= 4 for parts in split) and len({parts[0] for parts in split}) == 1
    level = int(wrapped and len({parts[1] for parts in split}) > 1)
    return [parts[level] if len(parts) > level + 1 else None for parts in split]


def _by_domain(
    folder: Path, of_each: Sequence[str | None], wanted: Sequence[str] | None
) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """Return the positions of the images of wanted domains, domain after domain; their domains; the names."""
    known = sorted({name for name in of_each if name is not None})
    if not known:
        raise InputError(
            f"the images of {folder} were not in domain folders: compute the features of DATA/DOMAIN/.."
        )
    names = tuple(known if wanted is None else require_domains(folder, known, wanted))
    if loose := sum(name is None for name in of_each):
        warn(f"Images outside the domain folders have no domain: {loose:,} left out.")
    number = {name: place for place, name in enumerate(names)}
    domain = np.array([number.get(name or "", -1) for name in of_each], np.int64)
    places = np.argsort(domain, kind="stable").astype(np.int64)
    places = places[domain[places] >= 0]
    return places, domain[places], names
