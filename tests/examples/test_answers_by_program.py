"""A program that sees the folders of the pictures answers the questions of a review."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from quick import quick

import ucds

SCRIPT = Path(__file__).parents[2] / "examples" / "answers_by_program.py"

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


def test_a_program_answers_and_the_reviewed_run_has_the_kinds(tmp_path: Path) -> None:
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
    command = [sys.executable, *map(str, [SCRIPT, run, images, *program])]
    environment = os.environ | {"PYTHONPATH": str(Path(ucds.__file__).parents[1])}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"{run}-reviewed written" in said
    before, after = (ucds.Review(folder) for folder in (run, f"{run}-reviewed"))
    kinds = np.unique([Path(name).parent.name for name in before.start.ids], return_inverse=True)[1]
    scores = [ucds.clustering_accuracy(one.start.own, kinds) for one in (before, after)]
    assert scores[0] < 0.8
    assert scores[1] > 0.95
