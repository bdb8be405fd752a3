"""Tests of what is said where packages of an extra are missing."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds import BulkOptions, Compute, InputError
from ucds.choices import ExportFormat
from ucds.config import read_settings
from ucds.data.sources import find_samples
from ucds.extras import EXTRAS, require_extra
from ucds.serving.ledger import Ledger
from ucds.source.private import GaussianNoise

CPU = Compute("cpu", cache=None)


@pytest.mark.parametrize(("extra", "package"), [(extra, name) for extra in EXTRAS for name in EXTRAS[extra]])
def test_each_missing_package_is_told_with_the_command_that_installs_it(
    extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    for name in EXTRAS[extra]:
        if name == package:
            monkeypatch.delitem(sys.modules, name, raising=False)
        else:
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InputError, match=rf"^PCD needs further packages: pip install 'ucds\[{extra}\]'$"):
        require_extra(extra, "PCD")


def exported(form: ExportFormat) -> None:
    """Export the model of a run of vectors."""
    np.save("x.npy", np.random.default_rng(0).normal(size=(40, 4)))
    ucds.export(ucds.train_target("x.npy", "run", n_clusters=2, compute=CPU).folder, form=form)


def saved_data_set() -> None:
    """Open a folder that looks like a saved data set."""
    Path("saved").mkdir()
    for name in ("state.json", "dataset_info.json"):
        Path("saved", name).write_text("{}")
    find_samples("saved", by_domain=False)


def image_features() -> None:
    """Compute features of an image on Ray."""
    Path("images").mkdir()
    Image.new("RGB", (32, 32)).save("images/a.png")
    ucds.features("images", "out", options=BulkOptions("ray"), compute=CPU)


ENTRANCES: dict[str, Callable[[], object]] = {
    "serve": lambda: importlib.import_module("ucds.serving"),
    "postgres": lambda: Ledger("postgresql://anna@127.0.0.1/x"),
    "export": lambda: exported("sklearn"),
    "datasets": saved_data_set,
    "ray": image_features,
    "privacy": GaussianNoise,
}
"""A way to each extra; PyTorch, figures, UMAP and formats of images have tests in their rooms."""


@pytest.mark.parametrize("extra", ENTRANCES)
def test_what_needs_an_extra_is_refused_in_one_line_that_names_it(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[:2] == ["ucds", "serving"]]:
        monkeypatch.delitem(sys.modules, name)
    for package in EXTRAS[extra]:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"^.* needs further packages: pip install 'ucds\[{extra}\]'$"):
        ENTRANCES[extra]()


WHOLE_NETWORKS: dict[str, Callable[[], object]] = {
    "a mapping": lambda: ucds.train_target("x.npy", "run", n_clusters=2, settings={"tune": "full"}),
    "an estimator with settings": lambda: ucds.SourceClustering(
        tune="full", settings=ucds.ConsensusSettings()
    ).fit(np.eye(4)),
    "a text": lambda: read_settings("consensus", "target", ["tune=full"]),
}


@pytest.mark.parametrize("way", WHOLE_NETWORKS)
def test_each_way_to_ask_for_a_whole_network_names_the_extra_that_trains_one(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"^`.* needs further packages: pip install 'ucds\[torch\]'$"):
        WHOLE_NETWORKS[way]()


def test_every_extra_of_the_package_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert EXTRAS.keys() == project["project"]["optional-dependencies"].keys()
