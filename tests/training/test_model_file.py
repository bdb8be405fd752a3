"""Tests of a finished model's file: what survives, and what is refused."""

import dataclasses
import json
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from ucds.choices import Role
from ucds.encoders.encoder import Encoder, FunctionEncoder, IdentityEncoder, ViewpointEncoder
from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.files import digest_of
from ucds.math.arrays import FloatArray
from ucds.training.model_file import FORMAT, StoredModel, arrays_digest, load_model, save_model
from ucds.training.run_folder import MODEL_FILE

MakeStored = Callable[..., StoredModel]


@pytest.fixture
def make(stored_model: MakeStored) -> MakeStored:
    """Make a model of vectors of width 5."""
    return partial(stored_model, IdentityEncoder(5), 3, 7)


@pytest.fixture
def run(make: MakeStored, tmp_path: Path) -> Path:
    save_model(tmp_path, make())
    return tmp_path


def rewrite(run: Path, tensors: dict[str, FloatArray] | None = None, **metadata: str | None) -> None:
    """Write the model file again with other tensors or header entries."""
    path = run / MODEL_FILE
    tensors = load_file(path) if tensors is None else tensors
    with safe_open(path, framework="np") as file:
        card = metadata.get("card") or file.metadata()["card"]
    digest = digest_of(card.encode(), arrays_digest(tensors))
    header = {"format": FORMAT, "card": card, "digest": digest} | metadata
    save_file(tensors, path, metadata={name: value for name, value in header.items() if value is not None})


ENCODERS: dict[str, tuple[Encoder | None, tuple[int, ...]]] = {
    "vectors as they are": (IdentityEncoder(5, tuple("abcde")), (4, 5)),
    "vectors from a point": (ViewpointEncoder(np.arange(6.0)), (4, 5)),
    "a graph": (find_graph(EDGES), (3, 3, 32, 32)),
}


@pytest.mark.parametrize(("encoder", "shape"), ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("unit_features", [True, False])
def test_card_head_encoder_and_proportions_survive(
    encoder: Encoder, shape: tuple[int, ...], unit_features: bool, stored_model: MakeStored, tmp_path: Path
) -> None:
    proportions = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], np.float32)
    made = stored_model(encoder, 3, 7, name="Klinik Süd", unit_features=unit_features)
    stored = dataclasses.replace(made, proportions=proportions)
    save_model(tmp_path, stored)
    found = load_model(tmp_path)
    assert (found.card, found.fingerprint) == (stored.card, stored.fingerprint)
    assert found.arrays.keys() == stored.arrays.keys()
    assert all(np.array_equal(found.arrays[name], array) for name, array in stored.arrays.items())
    assert found.head.unit_features is unit_features
    assert (found.encoder.spec, found.encoder.weights) == (stored.encoder.spec, stored.encoder.weights)
    inputs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_array_equal(found.encoder(inputs), stored.encoder(inputs))


def test_a_function_of_ones_own_is_asked_for(stored_model: MakeStored, tmp_path: Path) -> None:
    own = FunctionEncoder(np.sin, 5)
    save_model(tmp_path, stored_model(own, 3, 7))
    with pytest.raises(UserError, match="a function of your own"):
        load_model(tmp_path)
    assert load_model(tmp_path, encoder=own).encoder is own


@pytest.mark.parametrize(("role", "wanted"), [("source", "target"), ("target", "source")])
def test_the_wrong_side_is_refused(make: MakeStored, tmp_path: Path, role: Role, wanted: Role) -> None:
    save_model(tmp_path, make(role=role))
    with pytest.raises(UserError, match=f"role '{role}', but only one of role '{wanted}'"):
        load_model(tmp_path, role=wanted)
    assert load_model(tmp_path, role=role).card.role == role


def test_an_unfinished_run_no_run_and_a_folder_in_its_place_are_told_apart(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match="is not a run folder: it holds no model.safetensors"):
            load_model(path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="is not finished: continue it with `resume=True`"):
        load_model(tmp_path)
    (tmp_path / MODEL_FILE).mkdir()
    with pytest.raises(DamagedFileError, match="is a folder, and is not opened"):
        load_model(tmp_path)


@pytest.mark.parametrize("found", [None, "pt", "ucds-model/3"])
def test_foreign_safetensors_and_older_models_are_refused_in_one_line(run: Path, found: str | None) -> None:
    rewrite(run, format=found)
    words = f"^[^\\n]*is not a model of this version .format {found!r}, not 'ucds-model/4'[^\\n]*$"
    with pytest.raises(DamagedFileError, match=words):
        load_model(run)


def card_with(run: Path, **changes: Any) -> str:
    values = dataclasses.asdict(load_model(run).card) | changes
    return json.dumps({name: value for name, value in values.items() if value is not ...})


@pytest.mark.parametrize(
    "changes",
    [
        {"n_clusters": ...},
        {"extra": 1},
        {"encoder": {"name": "identity"}},
        {"encoder": None},
        {"domains": None},
        {"role": "somebody"},
    ],
)
def test_a_card_that_describes_no_model_is_refused(run: Path, changes: dict[str, Any]) -> None:
    for card in (card_with(run, **changes), "", "[]", "{"):
        rewrite(run, card=card)
        with pytest.raises(DamagedFileError, match="does not describe its model"):
            load_model(run)


def test_tensors_that_do_not_fit_the_card_are_refused(run: Path) -> None:
    tensors = load_file(run / MODEL_FILE)
    for changed in (
        {name: value for name, value in tensors.items() if name != "head.prototypes"},
        tensors | {"head.prototypes": np.zeros((7, 4), np.float32)},
        {name: value for name, value in tensors.items() if name != "proportions"},
    ):
        rewrite(run, changed)
        with pytest.raises(DamagedFileError, match="does not fit its own description"):
            load_model(run)


def test_a_file_with_any_bit_changed_is_refused_or_equal(run: Path) -> None:
    path = run / MODEL_FILE
    whole, before, card = path.read_bytes(), load_file(path), load_model(run).card
    generator = random.Random(0)
    for place in [*range(0, 20), *(generator.randrange(len(whole)) for _ in range(60))]:
        changed = whole[place] ^ 1 << generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
        with suppress(DamagedFileError):
            found = load_model(run)
            assert found.card == card
            assert all(np.array_equal(found.arrays[name], before[name]) for name in before)


def test_a_model_that_is_not_finite_is_neither_written_nor_read(run: Path) -> None:
    tensors, stored = load_file(run / MODEL_FILE), load_model(run)
    stored.head.prototypes[1, 2] = np.nan
    with pytest.raises(InputError, match=r"is not written: head\.prototypes holds NaN or infinity"):
        save_model(run, stored)
    assert load_file(run / MODEL_FILE).keys() == tensors.keys()
    tensors["head.bias"][0] = np.inf
    rewrite(run, tensors)
    with pytest.raises(DamagedFileError, match=r"head\.bias holds NaN or infinity; train it again"):
        load_model(run)
