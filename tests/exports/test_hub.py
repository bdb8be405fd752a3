"""Tests of folders in the layout of a hub: written, and opened again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ucds
from ucds.encoders.encoder import IdentityEncoder
from ucds.errors import InputError

VECTORS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)


WRITTEN = ["README.md", "config.json", "model.safetensors"]


def test_an_exported_folder_is_opened_as_a_run_is(make_model: Any, tmp_path: Path) -> None:
    model = make_model(IdentityEncoder(6))
    done = ucds.export(model, tmp_path / "hub", form="hub")
    (tmp_path / "hub" / ".new.0123456789abcdef.ucds-tmp").mkdir()  # as a kill leaves it
    ucds.export(model, tmp_path / "hub", form="hub")  # over the earlier one
    assert sorted(path.name for path in done.path.glob("[!.]*")) == WRITTEN
    again = ucds.load(done.path, compute=ucds.Compute("cpu"))
    np.testing.assert_array_equal(again.predict_proba(VECTORS), model.predict_proba(VECTORS))
    config = json.loads((done.path / "config.json").read_text())
    assert (config["model_type"], config["n_clusters"]) == ("ucds", 5)
    assert config["card"]["domains"] == ["a", "b"]


def test_an_export_replaces_nothing_but_an_earlier_one(make_model: Any, tmp_path: Path) -> None:
    model, repository = make_model(IdentityEncoder(6)), tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "README.md").write_text("# Years of work")
    (repository / "model.safetensors").write_text("of somebody else")
    for config in ("{}", '{"model_type": "bert"}', '{"model_type": "ucds"}'):
        (repository / "config.json").write_text(config)
        with pytest.raises(InputError, match="holds something other than an exported model"):
            ucds.export(model, repository, form="hub")
    assert (repository / "README.md").read_text() == "# Years of work"
    (tmp_path / "link").symlink_to(repository)
    with pytest.raises(InputError, match="link is a file or a link"):
        ucds.export(model, tmp_path / "link", form="hub")
    for name in WRITTEN:
        (repository / name).unlink()
    ucds.export(model, repository, form="hub")  # into a new clone
    ucds.export(model, repository, form="hub")
    assert sorted(path.name for path in repository.iterdir()) == [".git", *WRITTEN]


def test_the_card_says_how_the_model_was_made_and_names_no_path(make_model: Any, tmp_path: Path) -> None:
    model = make_model(ucds.EncoderOptions("ucds/oriented_edges").find(ucds.Compute("cpu")))
    model.save(tmp_path / "run")
    described = {"images": "/home/anna/secret", "labels": "ab", "data": "d" * 64}
    (tmp_path / "run" / "run.json").write_text(json.dumps(described))
    done = ucds.export(tmp_path / "run", form="hub")
    assert done.path == tmp_path / "run" / "hub"
    text = (done.path / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["library_name"] == "ucds"
    assert "role-target" in metadata["tags"]
    for row in ("| seed | 7 |", "| starts | 2 |", "| clusters, K | 5 |", "| method | consensus |"):
        assert row in body
    assert "| 4 | 0.200 | 0.200 |" in body  # proportions, a column a domain
    assert "one integer for each" in body
    assert "## What it is not for" in body
    assert "secret" not in text
    for damaged in ("[]", "{half", "[" * 100_000):
        (tmp_path / "run" / "run.json").write_text(damaged)
        with pytest.raises(ucds.DamagedFileError, match=r"run\.json is damaged"):
            ucds.export(tmp_path / "run", tmp_path / "other", form="hub")
    assert not (tmp_path / "other").exists()
