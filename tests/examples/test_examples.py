"""Every example runs as it stands, and finds what it was written to find."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from quick import quick

import ucds
from ucds.labels.journal import Journal, KeptReceipt
from ucds.labels.wire import ServiceInfo
from ucds.serving.checkpoints import Snapshots
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer
from ucds.serving.state import Statement

EXAMPLES = Path(__file__).parents[2] / "examples"
FOREIGN = {"verify_receipts", "onnx_model"}  # use nothing of this package; see their own tests
WITH_ARGUMENTS = {"answers_by_program"}  # see its own test
AT_LEAST = {"embeddings": 55.0, "own_network": 60.0, "pcd_loss": 55.0, "table": 80.0, "text": 95.0}
"""Accuracy in percent that each example must print at its end."""


@pytest.mark.parametrize(
    "name",
    ["table", *(pytest.param(name, marks=pytest.mark.slow) for name in AT_LEAST if name != "table")],
)
@pytest.mark.filterwarnings("error::UserWarning")
def test_example(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert float(re.findall(r"([\d.]+) %", printed)[-1]) >= AT_LEAST[name], printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_public_names_only(path: Path) -> None:
    imported = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.partition(".")[0] == "ucds"]
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "ucds":
            assert node.module == "ucds"
            imported += [alias.name for alias in node.names]
    assert set(imported) <= set(ucds.__all__)
    assert bool(imported) == (path.stem not in FOREIGN)


def test_every_example_is_tested() -> None:
    assert AT_LEAST.keys() | FOREIGN | WITH_ARGUMENTS == {path.stem for path in EXAMPLES.glob("*.py")}


PROGRAM = """
import sys
from collections import Counter
from pathlib import Path

groups = [[]]
for path in sys.argv[1:]:
    groups.append([]) if path == "--" else groups[-1].append(Path(path).parent.name)
doubtful, *others = [Counter(group).most_common(1)[0][0] for group in groups]
print(others.index(doubtful) + 1 if doubtful in others else "new")
"""


def test_a_program_answers_and_the_reviewed_run_has_the_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, images = np.random.default_rng(0), tmp_path / "images"
    rows, columns = np.indices((32, 32))
    stripes = {"level": rows, "upright": columns, "rising": rows + columns, "falling": rows - columns}
    for kind, place in stripes.items():
        (images / kind).mkdir(parents=True)
        for i in range(12):
            pixels = 60 * (place // 4 % 2)[:, :, None] + rng.normal(90, 15, size=(32, 32, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(images / kind / f"{i:02}.png")
    encoder, cpu = ucds.EncoderOptions("ucds/oriented_edges", "none"), ucds.Compute("cpu")
    given = {"n_clusters": 3, "encoder": encoder, "settings": quick(), "compute": cpu}
    run = ucds.train_target(images, tmp_path / "run", **given).folder
    (tmp_path / "program.py").write_text(PROGRAM)
    program = [sys.executable, "-IS", tmp_path / "program.py"]
    command = [EXAMPLES / "answers_by_program.py", run, images, *program]
    monkeypatch.setattr(sys, "argv", [str(word) for word in command])
    runpy.run_path(str(command[0]), run_name="__main__")
    said = capsys.readouterr().out
    assert f"{run}-reviewed written" in said
    before, after = (ucds.Review(folder) for folder in (run, f"{run}-reviewed"))
    kinds = np.unique([Path(name).parent.name for name in before.start.ids], return_inverse=True)[1]
    scores = [ucds.clustering_accuracy(one.start.own, kinds) for one in (before, after)]
    assert scores[0] < 0.8
    assert scores[1] > 0.95


WITHOUT_OURS = """
import runpy, sys
sys.modules["ucds"] = sys.modules["torch"] = None
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")
def test_an_exported_model_sorts_images_without_our_code(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, mode in enumerate(("RGB", "RGBA", "L", "P", "RGB", "LA", "RGB", "RGB")):
        coarse = rng.integers(256, size=(5, 4, 4), dtype=np.uint8)
        image = Image.fromarray(coarse, "RGBA").resize((70, 50)).convert(mode)
        path = tmp_path / "images" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(tmp_path / "images" / "turned.jpg", exif=turned)
    encoder = ucds.EncoderOptions("resnet10t", "none", 64)
    run = ucds.train_target(tmp_path / "images", tmp_path / "run", n_clusters=3, encoder=encoder).folder
    ucds.export(run, tmp_path / "model.onnx")
    found = ucds.predict(run, tmp_path / "images")
    command = [
        sys.executable,
        "-c",
        WITHOUT_OURS,
        EXAMPLES / "onnx_model.py",
        tmp_path / "model.onnx",
        tmp_path / "images",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(found.ids)
    assert [int(row[1]) for row in rows] == found.clusters.tolist()
    model = ucds.load(run, compute=ucds.Compute("cpu"))
    probabilities = model.outputs(model.open(tmp_path / "images")).probabilities
    np.testing.assert_allclose([float(row[2]) for row in rows], probabilities.max(1), atol=2e-3)


def verify(public: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(EXAMPLES / "verify_receipts.py"), public, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_receipts_and_checkpoints_are_verified_without_our_code(tmp_path: Path) -> None:
    book = Ledger(tmp_path, create=True)
    signer = Signer.open(tmp_path / "key.pem")
    book.trust(signer.public)
    key = book.authenticate(book.add_key("anna", 50))
    receipts, marks = tmp_path / "labels.json.receipts", tmp_path / "checkpoints"
    snapshots = Snapshots(book, signer, marks)
    # No more than a journal looks at.
    info = ServiceInfo.model_construct(
        provider="m", model_digest="a" * 32, n_clusters=9, signer=signer.public
    )
    with Journal(receipts, url="https://a.example", info=info) as journal:
        for number in range(3):
            labels = {bytes([number, i] * 8): i for i in range(4)}
            answers = book.charge(key, "a" * 32, list(labels), labels, request="r")
            told = {content.hex(): label for content, label in labels.items()}
            journal.add(KeptReceipt(receipt=answers.receipt(signer, "a" * 32), labels=told))
    snapshots.close()
    book.close()
    good = verify(signer.public, receipts, marks)
    assert (good.returncode, good.stdout[:28]) == (0, "3 receipts and 2 checkpoints"), good.stderr

    def changed(old: str, new: str, path: Path) -> subprocess.CompletedProcess[str]:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        done = verify(signer.public, receipts, marks)
        path.write_text(text)
        return done

    assert "InvalidSignature" in changed('"entries":["', '"entries":["00', receipts).stderr
    assert "InvalidSignature" in changed('"number":', '"number":1', marks).stderr
    assert "other labels" in changed('":3}', '":2}', receipts).stderr
    assert "32 digits" in changed('"labels":{"', '"labels":{"00', receipts).stderr
    assert "small order" in verify("01" + "00" * 31, receipts).stderr
    assert "InvalidSignature" in verify(Signer.open(tmp_path / "other.pem").public, receipts).stderr
    statement = Statement.model_validate_json(marks.read_text().splitlines()[-1])
    fields = statement.model_dump(exclude={"signer", "signature"}) | {"hash": "0" * 64}
    with marks.open("a") as file:
        file.write(signer.sign(Statement, **fields).model_dump_json() + "\n")
    assert "two different logs" in verify(signer.public, receipts, marks).stderr
