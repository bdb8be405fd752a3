"""Tests of a finished model's file: what survives, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from ucds.choices import Role
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.files import digest_of
from ucds.networks.build import build_backbone
from ucds.networks.spec import identity_backbone, module_backbone, tensors_digest
from ucds.training.model_file import FORMAT, StoredModel, load_model, save_model
from ucds.training.run_folder import MODEL_FILE

MakeStored = Callable[..., StoredModel]


@pytest.fixture
def make(stored_model: MakeStored) -> MakeStored:
    """Make a model of vectors of width 5, with running statistics of its own."""
    return partial(stored_model, identity_backbone(5), 3, 7, spread=True)


@pytest.fixture
def run(make: MakeStored, tmp_path: Path) -> Path:
    save_model(tmp_path, make())
    return tmp_path


def rewrite(run: Path, tensors: dict[str, torch.Tensor] | None = None, **metadata: str | None) -> None:
    """Write the model file again with other tensors or header entries."""
    path = run / MODEL_FILE
    tensors = load_file(path) if tensors is None else tensors
    with safe_open(path, framework="pt") as file:
        card = metadata.get("card") or file.metadata()["card"]
    digest = digest_of(card.encode(), tensors_digest(tensors).encode())
    header = {"format": FORMAT, "card": card, "digest": digest} | metadata
    save_file(tensors, path, metadata={name: value for name, value in header.items() if value is not None})


@pytest.mark.parametrize("unit_features", [True, False])
def test_model_card_and_proportions_survive(make: MakeStored, tmp_path: Path, unit_features: bool) -> None:
    proportions = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    stored = dataclasses.replace(
        make(name="Klinik Süd", unit_features=unit_features), proportions=proportions
    )
    save_model(tmp_path, stored)
    found = load_model(tmp_path)
    assert found.card == stored.card
    assert torch.equal(found.proportions, proportions)
    assert not found.model.training
    expected, state = stored.model.state_dict(), found.model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())
    inputs = 9 * torch.randn(4, 5)
    assert torch.equal(found.model(inputs).logits, stored.model(inputs).logits)


def test_a_module_of_ones_own_is_asked_for(stored_model: MakeStored, tmp_path: Path) -> None:
    stored = stored_model(module_backbone(nn.Linear(5, 6), 6), 3, 7)
    save_model(tmp_path, stored)
    with pytest.raises(UserError, match="a module of your own"):
        load_model(tmp_path)
    found = load_model(tmp_path, backbone=module_backbone(nn.Linear(5, 6), 6))
    inputs = torch.randn(4, 5)
    assert torch.equal(found.model(inputs).logits, stored.model(inputs).logits)


@pytest.mark.parametrize(("role", "wanted"), [("source", "target"), ("target", "source")])
def test_the_wrong_side_is_refused(make: MakeStored, tmp_path: Path, role: Role, wanted: Role) -> None:
    save_model(tmp_path, make(role=role))
    with pytest.raises(UserError, match=f"holds a model of role '{role}', and only one of role '{wanted}'"):
        load_model(tmp_path, role=wanted)
    assert load_model(tmp_path, role=role).card.role == role


def test_an_unfinished_run_no_run_and_a_folder_in_its_place_are_told_apart(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match="is not a run folder: it holds no model.safetensors"):
            load_model(path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UserError, match="is not finished: take it up again with --resume"):
        load_model(tmp_path)
    (tmp_path / MODEL_FILE).mkdir()
    with pytest.raises(DamagedFileError, match="is a folder, which is not opened"):
        load_model(tmp_path)


@pytest.mark.parametrize("found", [None, "pt", "ucds-model/3"])
def test_foreign_safetensors_are_refused(run: Path, found: str | None) -> None:
    rewrite(run, format=found)
    with pytest.raises(
        DamagedFileError, match=f"is not a ucds model .format {found!r}, expected 'ucds-model/2'"
    ):
        load_model(run)


def card_with(run: Path, **changes: Any) -> str:
    values = dataclasses.asdict(load_model(run).card) | changes
    return json.dumps({name: value for name, value in values.items() if value is not ...})


@pytest.mark.parametrize(
    "changes",
    [
        {"n_clusters": ...},
        {"extra": 1},
        {"backbone": {"name": "identity"}},
        {"backbone": None},
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
        {name: value for name, value in tensors.items() if name != "model.prototypes"},
        tensors | {"model.prototypes": torch.zeros(7, 4)},
        tensors | {"model.extra": torch.zeros(1)},
        {name: value for name, value in tensors.items() if name != "proportions"},
    ):
        rewrite(run, changed)
        with pytest.raises(DamagedFileError, match="does not fit its own description"):
            load_model(run)


def test_a_file_with_any_bit_changed_is_refused_or_equal(run: Path) -> None:
    path = run / MODEL_FILE
    whole, before, card = path.read_bytes(), load_file(path), load_model(run).card
    generator = random.Random(0)
    for place in [*range(0, 40), *(generator.randrange(len(whole)) for _ in range(160))]:
        changed = whole[place] ^ 1 << generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
        with suppress(DamagedFileError):
            found = load_model(run)
            assert found.card == card
            state = found.model.state_dict()
            assert all(torch.equal(state[name], before[f"model.{name}"]) for name in state)


def test_a_model_that_is_not_finite_is_neither_written_nor_read(run: Path) -> None:
    tensors, stored = load_file(run / MODEL_FILE), load_model(run)
    with torch.no_grad():
        stored.head.prototypes[1, 2] = torch.nan
    with pytest.raises(InputError, match=r"is not written: model\.prototypes holds NaN or infinity"):
        save_model(run, stored)
    assert load_file(run / MODEL_FILE).keys() == tensors.keys()
    tensors["model.encoder.bottleneck.norm.running_var"][0] = torch.inf
    rewrite(run, tensors)
    with pytest.raises(DamagedFileError, match=r"norm\.running_var holds NaN or infinity; train it again"):
        load_model(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_clusters": 10**12},
        {"bottleneck_width": -1},
        {"backbone": {"name": "identity", "width": 10**15}},
        {"backbone": {"name": "identity", "width": -3}},
        {"backbone": {"name": "no such network", "width": 5}},
    ],
)
def test_an_edited_card_is_refused_in_one_line(run: Path, changes: dict[str, Any]) -> None:
    rewrite(run, card=card_with(run, **changes))
    with pytest.raises(UserError) as error:
        load_model(run).model.count_parameters()  # a network is built when it is first asked for
    assert "\n" not in str(error.value)


def test_the_libraries_of_networks_are_not_loaded_for_weights_that_are_known(
    stored_model: MakeStored, tmp_path: Path
) -> None:
    stored = stored_model(build_backbone("resnet18", weights="none", input_size=32, seed=3), 4, 8)
    save_model(tmp_path, stored)
    code = (
        "import sys; from pathlib import Path; from ucds.training.model_file import load_model, save_model\n"
        "stored = load_model(Path(sys.argv[1])); stored.backbone.digest\n"
        "save_model(Path(sys.argv[2]), stored)\n"
        "assert not {'timm', 'torchvision'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path, tmp_path / "again"], check=True)
    again = load_model(tmp_path / "again")  # a network is rebuilt from its name
    assert again.model.spec == stored.backbone.spec
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again.model(images).logits, stored.model(images).logits)
