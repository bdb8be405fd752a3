"""Arrays and files of embeddings."""

import io
import pickle
import tracemalloc

import numpy as np
import pytest

from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples, load_vectors, read_arrays
from ucds.errors import UserError


def rows(n: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_an_array_is_one_domain_and_not_copied():
    array = rows(5)
    samples = VectorSamples(array)
    assert isinstance(samples, Samples)
    assert samples.rows.parts[0] is array
    assert samples.ids == ("0", "1", "2", "3", "4")
    assert samples.domain.tolist() == [0] * 5
    read = samples.read(np.array([3, 3, 0]))
    assert np.array_equal(read, array[[3, 3, 0]])
    read[:] = 0
    assert array.any(), "what is read is a copy"


def test_one_domain_per_array():
    arrays = {"web": rows(2), "art": rows(3, seed=1)}
    samples = VectorSamples.from_arrays(arrays)
    assert samples.domain_names == ("art", "web")
    assert samples.domain.tolist() == [0, 0, 0, 1, 1]
    together = np.concatenate([arrays["art"], arrays["web"]])
    np.testing.assert_array_equal(samples.read(np.arange(5)), together)
    np.testing.assert_array_equal(samples.read(np.array([4, 0, 2, 2])), together[[4, 0, 2, 2]])


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32, np.uint8, list])
def test_other_numbers_become_float32(kind):
    array = np.arange(6).reshape(2, 3)
    samples = VectorSamples(array.tolist() if kind is list else array.astype(kind))
    assert samples.read(np.array([1])).tolist() == [[3.0, 4.0, 5.0]]
    assert samples.read(np.array([1])).dtype == np.float32


def test_double_precision_is_kept_where_single_precision_would_blur():
    array = np.random.default_rng(0).normal(size=(2500, 3))
    assert VectorSamples(array).read(np.arange(2)).dtype == np.float32
    assert VectorSamples(array + 2.0**30).read(np.arange(2)).dtype == np.float64


def test_keys_and_fingerprint_change_with_content_ids_and_domains():
    keys = VectorSamples(rows(3)[[0, 1, 0]]).keys
    assert keys[0] == keys[2] != keys[1]
    assert {len(key) for key in keys} == {16}
    changed = rows(5)
    changed[4, 3] += 1e-6
    variants = [
        VectorSamples(rows(5)),
        VectorSamples(changed),
        VectorSamples(rows(5)[::-1]),
        VectorSamples(rows(5), ids=("a", "b", "c", "d", "e")),
        VectorSamples(rows(5), np.array([0, 0, 1, 1, 1]), ("a", "b")),
        VectorSamples(rows(5), np.array([0, 0, 1, 1, 1]), ("a", "c")),
    ]
    assert len({samples.fingerprint for samples in variants}) == len(variants)
    assert VectorSamples(rows(5)).fingerprint == VectorSamples(np.asfortranarray(rows(5))).fingerprint


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((2, 2, 2)), "shape"),
        (np.zeros((0, 4)), "shape"),
        (np.zeros((4, 0)), "shape"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.zeros((2, 2), complex), "real numbers"),
        (np.zeros((2, 2), "datetime64[s]"), "real numbers"),
        (np.array([[1.0], [np.nan]]), r"NaN or infinity \(first in row 1\)"),
        (np.array([[np.inf], [0.0]]), r"NaN or infinity \(first in row 0\)"),
        (np.array([[1e300], [0.0]]), r"numbers beyond 1e\+15"),
        (np.array([[1.0, 2.0], [1e30, 0.0]]), r"numbers beyond 1e\+15 \(first in row 1\); make all smaller"),
    ],
)
def test_unusable_arrays_are_refused(array, words):
    with pytest.raises(UserError, match=words):
        VectorSamples(array)


def test_domains_must_be_of_one_width():
    with pytest.raises(UserError, match="a: 4, b: 5"):
        VectorSamples.from_arrays({"b": rows(2, 5), "a": rows(2, 4)})
    with pytest.raises(UserError, match="no arrays"):
        VectorSamples.from_arrays({})
    with pytest.raises(UserError, match="domain 'b' holds NaN"):
        VectorSamples.from_arrays({"a": rows(2), "b": np.full((2, 4), np.nan)})


def test_rows_of_a_file_are_neither_copied_nor_python_objects(tmp_path):
    n, width = 20_000, 16
    array = rows(n, width)
    np.save(tmp_path / "x.npy", array.astype(np.float64))
    tracemalloc.start()
    try:
        samples = load_vectors(tmp_path / "x.npy")
        assert len(samples.ids) == len(samples.keys) == n
        assert samples.fingerprint
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 45 * n  # 16 bytes of key, 16 of id and 8 of domain; the values alone are 64
    assert isinstance(samples.rows.parts[0], np.memmap)
    some = np.array([n - 1, 50, 100])
    np.testing.assert_array_equal(samples.read(some), array[some])
    assert samples.domain_names == ("x",)
    assert samples.fingerprint == VectorSamples(array, domain_names=("x",)).fingerprint


def written(save, *values, **named) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *values, **named)
    return buffer.getvalue()


OBJECTS = np.array([[{"a": 1}]], dtype=object)
BAD = {
    "objects": written(np.save, OBJECTS),
    "archive of objects": written(np.savez, a=OBJECTS),
    "part of a file": written(np.save, rows(100))[:500],
    "nothing": b"",
    "pickle": pickle.dumps([1]),
    "deep header": b"\x93NUMPY\x01\x00\xb8\x0b" + b"(" * 3000,
    "start of an archive": b"PK\x03\x04",
    "end of an archive": b"PK\x05\x06" + bytes(9),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_in_words(tmp_path, kind):
    path = tmp_path / "bad.npz"
    path.write_bytes(BAD[kind])
    with pytest.raises(UserError, match=r"bad\.npz is not a readable \.npy or \.npz file of numbers"):
        load_vectors(path)


def test_the_content_and_not_the_name_tells_what_a_file_is(tmp_path):
    np.save(tmp_path / "one.npy", np.eye(3))
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.arange(4))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    one, two = read_arrays(tmp_path / "one.npz"), read_arrays(tmp_path / "two.npy")
    assert isinstance(one["one"], np.memmap)
    assert (two["a"] == np.eye(2)).all()
    assert two["b"].tolist() == [0, 1, 2, 3]
