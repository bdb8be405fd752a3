"""Small programs that a user of scikit-learn would write: each works, or ends in an error of this package."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds import ConsensusSettings, InputError, SourceClustering, TargetClustering

CPU = ucds.Compute("cpu")
QUICK = {"starts": 1}


@pytest.fixture(scope="module")
def x(blobs: Callable[..., dict[str, Any]]) -> Any:
    return blobs({"t": 40})["t"]


@pytest.fixture(scope="module")
def run(x: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs") / "run"
    return ucds.train_target(x, place, n_clusters=4, settings=QUICK, compute=CPU).folder


@pytest.mark.parametrize("settings", [QUICK, ConsensusSettings(starts=1)], ids=["mapping", "object"])
def test_settings_are_a_mapping_or_an_object_in_functions_and_estimators(
    settings: Any, x: Any, tmp_path: Path
) -> None:
    ucds.train_target(x, tmp_path / "run", n_clusters=4, settings=settings, compute=CPU)
    function = ucds.load(tmp_path / "run").stored.arrays
    fitted = TargetClustering(4, settings=settings, random_state=0).fit(x).stored_.arrays
    assert function.keys() == fitted.keys()
    assert all(np.array_equal(array, fitted[name]) for name, array in function.items())


WRONG: list[tuple[Callable[[Any, Path], object], str]] = [
    (lambda x, run: ucds.train_target(x, run / "out"), "give the `labels`"),
    (lambda x, run: ucds.train_target(x, run, n_clusters=3), "`out`"),
    (lambda x, run: ucds.train_target(x, run / "out", n_clusters=3, settings=3), "`settings`.* a mapping"),  # type: ignore[arg-type]
    (lambda x, run: ucds.train_target(x, run / "out", n_clusters=3, settings={"start": 2}), "'starts'"),
    (lambda x, run: ucds.BulkOptions(workers=4), '`workers` is for `engine="ray"`'),
    (lambda x, run: ucds.BulkOptions(shard_size=0), "at least 1"),
    (lambda x, run: ucds.predict(run, x, min_confidence=2), "`min_confidence`"),
    (lambda x, run: ucds.predict(run, x[:, :3]), "width 3"),
    (lambda x, run: ucds.evaluate(run, x), "class folders"),
    (lambda x, run: ucds.load(run, role="source"), "role"),
    (lambda x, run: ucds.load(run / "missing"), "run folder"),
    (lambda x, run: SourceClustering.load(run), "role"),
    (lambda x, run: TargetClustering(4).fit(x, source_labels=[0.5] * len(x)), "source_labels"),
    (lambda x, run: TargetClustering("many").fit(x), "'auto'"),
    (lambda x, run: TargetClustering(4, backbone="resnet18").fit(x), "backbone"),
    (lambda x, run: TargetClustering(4).fit(np.arange(900.0)), "^Expected 2D array, .*: Reshape your data"),
    (lambda x, run: ucds.load(run, encoder=ucds.FunctionEncoder(abs, 6)), "holds its encoder"),
    (lambda x, run: ucds.EncoderOptions(image_size=0), "1 to 1024 pixels, not 0"),
]


@pytest.mark.parametrize(("program", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_wrong_is_one_short_line_in_the_words_of_python(
    program: Callable[[Any, Path], object], words: str, x: Any, run: Path
) -> None:
    before = sorted(run.rglob("*"))
    with pytest.raises(InputError, match=words) as error:
        program(x, run)
    message = str(error.value).replace(str(run), "RUN")
    assert "\n" not in message
    assert "--" not in message
    assert len(message) < 400
    assert sorted(run.rglob("*")) == before


def test_a_run_is_loaded_asked_printed_and_pickled(run: Path, x: Any) -> None:
    model = ucds.load(run, compute=CPU)
    assert (model.method, model.tune, model.seed) == ("consensus", "head", 0)
    assert model.versions == json.loads((run / "run.json").read_text())["versions"]
    found = ucds.predict(run, x, compute=CPU)
    for result in (model, found, ucds.Review(run), ucds.Review(run).seen):
        assert "\n" not in repr(result)
        assert " at 0x" not in repr(result)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), found.clusters)


def test_provider_and_client_meet_in_arrays(x: Any) -> None:
    provider = SourceClustering(4, settings=QUICK, random_state=0).fit(x)
    answers = provider.label(x, provider="north")
    client = TargetClustering(4, settings=QUICK, random_state=0).fit(x, source_labels=answers)
    assert client.transform(x).shape == (len(x), len(client.get_feature_names_out()))
    assert len(set(zip(client.labels_.tolist(), answers.labels.tolist(), strict=True))) == 4
