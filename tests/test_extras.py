"""Tests of what is said where packages of an extra are missing."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds import BulkOptions, Compute, InputError
from ucds.data.sources import find_samples
from ucds.extras import EXTRAS
from ucds.serving.ledger import Ledger
from ucds.source.private import GaussianNoise

CPU = Compute("cpu", cache=None)


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
    "export": lambda: ucds.export("run", form="sklearn"),
    "datasets": saved_data_set,
    "ray": image_features,
    "privacy": GaussianNoise,
}
"""A way to each extra; PyTorch, figures, UMAP and formats of images have tests in their rooms."""


@pytest.mark.parametrize("extra", ENTRANCES)
def test_what_needs_an_extra_names_it_in_one_line_if_one_package_is_missing(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[:2] == ["ucds", "serving"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, EXTRAS[extra][-1], None)
    with pytest.raises(InputError, match=rf"^.* needs further packages: pip install 'ucds\[{extra}\]'$"):
        ENTRANCES[extra]()


WHOLE_NETWORKS: dict[str, Callable[[], object]] = {
    "a mapping": lambda: ucds.train_target("x.npy", "run", n_clusters=2, settings={"tune": "full"}),
    "an estimator": lambda: ucds.SourceClustering(tune="full").fit(np.eye(4)),
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
