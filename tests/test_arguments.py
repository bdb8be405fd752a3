"""Every public function refuses an argument that is not of its annotated kind by name, before any work."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.arguments import checked
from ucds.target.seen import Seen

OTHERS = ("clustering_accuracy", "build_network", "module_encoder")  # of arrays, and of PyTorch
FUNCTIONS = [name for name in ucds.__all__ if name.islower() and name not in OTHERS]
OPTIONS = ["RunOptions", "EncoderOptions", "Compute", "BulkOptions"]


def call(name: str, argument: str, value: object) -> None:
    """Call a public function with one argument, and a text or a client for each other that it needs."""
    function: Callable[..., Any] = getattr(ucds, name)
    needed = {
        key: ucds.LabelClient("http://127.0.0.1:1", "key") if key == "client" else "nothing"
        for key, entry in inspect.signature(function).parameters.items()
        if entry.default is inspect.Parameter.empty
    }
    function(**needed | {argument: value})


@pytest.mark.parametrize("name", FUNCTIONS + OPTIONS)
def test_another_kind_is_refused_by_name(name: str) -> None:
    for argument in inspect.signature(getattr(ucds, name)).parameters:
        with pytest.raises(ucds.InputError, match=f"^`{argument}` must be .*, not <object object"):
            call(name, argument, object())


MANY = list(range(500))


@pytest.mark.parametrize(
    ("name", "argument", "value", "message"),
    [
        ("train_target", "compute", "cpu", "`compute` must be Compute or None, not 'cpu'"),
        ("train_target", "options", {"seed": 1}, "`options` must be RunOptions or None, not {'seed': 1}"),
        ("train_source", "domains", "north", "`domains` must be a sequence or None, not 'north'"),
        ("predict", "run", MANY, f"`run` must be a text or a path, not {str(MANY)[:77]}..."),
        ("predict", "min_confidence", True, "`min_confidence` must be a number, not True"),
        ("RunOptions", "seed", 1.5, "`seed` must be an integer, not 1.5"),
        ("RunOptions", "resume", 1, "`resume` must be True or False, not 1"),
        ("RunOptions", "seed", -1, "`seed` must be at least 0 and below 2**32, not -1"),
        ("Compute", "accelerator", "gpu", "`accelerator` must be one of auto, cpu, cuda, mps, not 'gpu'"),
        ("BulkOptions", "engine", "dask", "`engine` must be one of plain, ray, not 'dask'"),
        ("export", "form", "zip", "`form` must be one of onnx, sklearn, hub, not 'zip'"),
        ("predict", "sort_how", "move", "`sort_how` must be one of copy, link, not 'move'"),
        ("train_source", "n_clusters", 1, "the number of clusters must be at least 2"),
        ("serve", "notice", "told", "`notice` must be a function, not 'told'"),
    ],
)
def test_the_message_says_what_is_right(name: str, argument: str, value: object, message: str) -> None:
    with pytest.raises(ucds.InputError) as caught:
        call(name, argument, value)
    assert str(caught.value) == message


def test_numbers_of_numpy_become_numbers_of_python_and_texts_are_paths(tmp_path: Path) -> None:
    @checked
    def same(one: float) -> Any:
        return one

    assert [type(same(number)) for number in (np.int64(3), np.uint8(3), np.float32(3))] == [int, int, float]
    assert type(ucds.RunOptions(seed=np.int64(3)).seed) is int
    assert type(ucds.ClusterLabels(["a"], np.array([0]), np.uint8(3), "provider").n_clusters) is int
    assert ucds.Compute(cache=str(tmp_path)).cache == tmp_path


METHODS = {
    "move": [(), 0],
    "aside": [()],
    "join": [()],
    "split": [0, 2],
    "cut": [2],
    "name": [0, "cat"],
    "take": ["answers.jsonl"],
    "suggest": [None, 3],
    "like": [(), 3],
    "like_picture": ["a.jpg", 3],
    "finish": [None],
    "save_table": ["a.csv"],
    "sort_into": ["sorted", None],
}
"""Methods of a review with arguments of the right kinds, of which "like_picture" takes any picture."""


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_a_review_refuses_another_kind_by_name(method: str) -> None:
    function, given = getattr(ucds.Review, method), METHODS[method]
    texts = () if method in {"name", "take", "finish", "save_table", "sort_into"} else ("0001.jpg",)
    for value in (object(), 2.5, *texts):
        for place in range(method == "like_picture", len(given)):
            arguments = [*given[:place], value, *given[place + 1 :]]
            with pytest.raises(ucds.InputError, match="^`[a-z]+` must be"):
                function(ucds.Review.__new__(ucds.Review), *arguments)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ucds.LabelClient(3), "url"),
        (lambda: ucds.LabelClient("http://127.0.0.1:1", timeout="long"), "timeout"),
        (lambda: ucds.Limits(max_batch="many"), "max_batch"),
        (lambda: ucds.FunctionEncoder(3), "function"),
        (lambda: ucds.FunctionEncoder(abs, "wide"), "width"),
        (lambda: ucds.Review(3), "run"),
        (lambda: ucds.ClusterLabels(["a"], np.array([0]), 1, 3), "provider"),
        (lambda: Seen.members(None, 0, "doubt"), "order"),
        (lambda: ucds.TargetClustering(3, cache=3).fit(np.ones((9, 2))), "cache"),
        (lambda: ucds.TargetClustering.load(3), "run"),
        (lambda: ucds.TargetClustering.load("run", accelerator="gpu"), "accelerator"),
        (lambda: ucds.TargetClustering.load("run", backbone=3), "backbone"),
        (lambda: ucds.ClusterLabels("ab", np.array([0, 1]), 2, "provider"), "ids"),
        (lambda: ucds.RunOptions(devices=0), "devices"),
        (lambda: ucds.LabelClient("http://127.0.0.1:1", timeout=0), "timeout"),
        (lambda: ucds.LabelClient("http://127.0.0.1:1", patience=float("nan")), "patience"),
        (lambda: ucds.Effort(shadows=0), "shadows"),
        (lambda: ucds.Model(3), "stored"),
    ],
)
def test_an_object_refuses_another_kind_by_name(make: Callable[[], object], argument: str) -> None:
    with pytest.raises(ucds.InputError, match=f"^`{argument}` must be"):
        make()
