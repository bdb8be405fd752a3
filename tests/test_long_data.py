"""No message repeats long data, whichever argument they were given as."""

import inspect
import itertools
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick import quick

import ucds
from ucds import Compute, UcdsWarning, UserError

LONG: dict[str, Any] = {
    "array": np.linspace(0, 1, 900).reshape(300, 3),
    "list": list(range(500)),
    "mapping": {f"key {i}": i for i in range(300)},
    "text": "word " * 600,
    "word": "x" * 250,
    "number": 10**300,
}
FUNCTIONS = ("evaluate", "label", "predict", "report", "train_source", "train_target", "update")
OBJECTS = ("ClusterLabels", "Compute", "ConsensusSettings", "EncoderOptions", "Limits", "PCDSettings")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Arguments that are right, by name."""
    folder = tmp_path_factory.mktemp("d")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "two.npz", a=x, b=x + 1)
    compute = Compute("cpu", cache=None)
    given: dict[str, Any] = {"n_clusters": 2, "settings": quick(), "compute": compute}
    run = ucds.train_target(folder / "x.npy", folder / "run", **given).folder
    places = dict.fromkeys(("images", "members", "others"), folder / "x.npy")
    right = {"run": run, "data": folder / "two.npz", "out": folder / "new"}
    labels = {"ids": ["a"], "labels": np.array([0]), "provider": "p"}
    return {**given, **places, **right, **labels}


def refusals(called: Callable[..., Any], usual: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Call with each long value in place of each argument, and yield our refusals, each with its value."""
    wanted = inspect.signature(called).parameters
    needed = {name for name, entry in wanted.items() if entry.default is entry.empty} | {
        "compute",
        "settings",
    }
    right = {name: value for name, value in usual.items() if name in wanted and name in needed}
    for name, value in itertools.product(wanted, LONG.values()):
        try:
            called(**{**right, name: value})
        except UserError as error:
            yield str(error), value
        except Exception:  # of another library, about the type of an argument
            continue
        finally:
            shutil.rmtree(usual["out"], ignore_errors=True)


@pytest.mark.parametrize("name", [*FUNCTIONS, *OBJECTS])
def test_no_refusal_repeats_long_data(
    name: str, usual: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore", category=UcdsWarning):
        for told, value in refusals(getattr(ucds, name), usual):
            assert len(told) <= 600
            if value is not LONG["text"]:  # words may be the name of a file
                assert repr(value)[1:85] not in " ".join(told.split())
