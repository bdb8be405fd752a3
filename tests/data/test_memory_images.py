"""Images that are in memory already."""

import io
import zlib

import numpy as np
import pandas
import pyarrow.parquet
import pytest
from picture_kit import saved
from PIL import Image

from ucds.data.columns import Pictures
from ucds.data.content import number_rows
from ucds.data.decode import decode_image
from ucds.data.images import MemoryImages
from ucds.data.samples import Samples
from ucds.data.sources import find_samples
from ucds.errors import InputError, UcdsWarning

SIZE = 16


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def in_memory(images: list, size: int = SIZE) -> MemoryImages:
    domain = np.zeros(len(images), np.int64)
    return MemoryImages(Pictures(images, number_rows(len(images)), domain, ("images",)), size)


def everything(samples: Samples) -> np.ndarray:
    return samples.read(np.arange(len(samples)))


def test_pixels_of_the_right_size_stay_as_they_are():
    arrays = [noise((SIZE, SIZE, 3), seed) for seed in range(3)]
    samples = in_memory(arrays)
    assert isinstance(samples, Samples)
    assert (len(samples), samples.ids, samples.domain_names) == (3, ("0", "1", "2"), ("images",))
    assert samples.domain.tolist() == [0, 0, 0]
    read = samples.read(np.array([2, 0, 2]))
    assert read.dtype == np.uint8
    assert (read == np.stack([arrays[i].transpose(2, 0, 1) for i in (2, 0, 2)])).all()
    read[:] = 0
    assert everything(samples).any(), "what is read is a copy"


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "F"])
def test_images_come_out_like_their_files(mode):
    image = Image.fromarray(noise((30, 40, 3))).convert("L" if mode in ("I;16", "F") else mode)
    if mode in ("I;16", "F"):
        image = image.convert("I" if mode == "I;16" else "F").convert(mode)
    expected = decode_image(saved(image, "TIFF"), SIZE)
    assert (everything(in_memory([image]))[0] == expected).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_callers_images_stay_as_they_are(kind):
    """A decoder may read a large JPEG at a fraction of its size: not one that belongs to the caller."""
    with Image.open(io.BytesIO(saved(Image.fromarray(noise((300, 400, 3))), kind))) as image:
        in_memory([image])
        assert (image.size, image.mode) == ((400, 300), "RGB")
        assert np.asarray(image).shape == (300, 400, 3)
    pixels = noise((40, 30, 3))
    before = pixels.copy()
    in_memory([pixels])
    assert (pixels == before).all()


@pytest.mark.parametrize(
    "image",
    [
        noise((8, 8, 3)).astype(np.float32),
        noise((8, 8, 2)),
        noise((8, 8, 1)),
        noise((2, 8, 8, 3)),
        noise((8,)),
        "cat.jpg",
    ],
)
def test_other_things_are_refused_by_position(image):
    with pytest.raises(InputError, match="image 1 is neither a PIL image nor an array"):
        in_memory([noise((8, 8, 3)), image])


class TornRows:
    """A data set that decodes its pictures when they are taken, and fails at one."""

    def __len__(self) -> int:
        return 3

    def __init__(self, torn: int = 1, error: Exception | None = None) -> None:
        self.torn, self.error = torn, error or OSError("image file is truncated")

    def __getitem__(self, row: int) -> dict[str, Image.Image]:
        if row == self.torn:
            raise self.error
        return {"image": Image.new("RGB", (8, 8))}


WHOLE = saved(Image.fromarray(noise((64, 64, 3))), "PNG")
TORN = WHOLE[:2000]


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        ([WHOLE, TORN, WHOLE], 1),
        ([Image.open(io.BytesIO(data)) for data in (WHOLE, TORN, WHOLE)], 1),
        ([{"image": {"bytes": data, "path": None}} for data in (WHOLE, TORN, WHOLE)], 1),
        ([{"image": {"bytes": data, "path": None}} for data in (WHOLE, None, WHOLE)], 1),
        ([noise((8, 8, 3)), noise((0, 8, 3)), noise((8, 8, 3))], 1),
        ([Image.fromarray(np.full((4, 4), value, np.float32)) for value in (1, np.nan, 2)], 1),
        (TornRows(), 1),
        (TornRows(error=zlib.error("incorrect data check")), 1),
        ([bytearray(WHOLE), bytearray(TORN), bytearray(WHOLE)], 1),
        (pandas.DataFrame({"image": [WHOLE, "x.png", WHOLE]}), 1),
        (TornRows(0), 0),
        ([None, WHOLE, WHOLE], 0),
        ([{"image": data} for data in ("x.png", WHOLE, WHOLE)], 0),
        (pandas.DataFrame({"image": ["x.png", WHOLE, WHOLE]}), 0),
    ],
)
def test_one_broken_picture_costs_no_run(source, broken) -> None:
    found = find_samples(source, by_domain=False)
    with pytest.warns(UcdsWarning) as warned:
        samples = MemoryImages(found, SIZE)
    told = [str(one.message).split(":")[0] for one in warned]
    assert told == [f"image {broken}", "1 of 3 images cannot be used"]
    kept = [row for row in range(3) if row != broken]
    assert (samples.ids, samples.kept.tolist()) == (tuple(map(str, kept)), kept)
    assert samples.skipped == 1
    assert everything(samples).shape == (2, 3, SIZE, SIZE)


def test_a_broken_picture_of_a_parquet_file_is_named_by_its_id(tmp_path) -> None:
    rows = {"id": ["cat", "dog", "cow"], "image": [{"bytes": data} for data in (TORN, WHOLE, WHOLE)]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "x.parquet")
    found = find_samples(tmp_path / "x.parquet", by_domain=False)
    with pytest.warns(UcdsWarning, match="image cat: damaged or truncated"):
        samples = MemoryImages(found, SIZE)
    assert (samples.ids, samples.kept.tolist()) == (("dog", "cow"), [1, 2])


def test_pictures_of_which_none_can_be_used_are_an_error() -> None:
    with pytest.raises(InputError, match=r"none of the 2 samples can be used \(image: no picture\)"):
        find_samples([None, None], by_domain=False)
    with pytest.raises(InputError, match=r"None of the 2 files .* \(image 0: damaged or truncated"):
        in_memory([TORN, TORN])
