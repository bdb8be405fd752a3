"""The example that runs an exported model without this package finds what the model finds."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ucds

SCRIPT = Path(__file__).parents[2] / "examples" / "onnx_model.py"

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
    command = [sys.executable, "-c", WITHOUT_OURS, SCRIPT, tmp_path / "model.onnx", tmp_path / "images"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(found.ids)
    assert [int(row[1]) for row in rows] == found.clusters.tolist()
    model = ucds.load(run, compute=ucds.Compute("cpu"))
    probabilities = model.outputs(model.open(tmp_path / "images")).probabilities
    np.testing.assert_allclose([float(row[2]) for row in rows], probabilities.max(1), atol=2e-3)
