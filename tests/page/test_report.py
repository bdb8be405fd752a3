"""Tests of `ucds.report`: what the page says, what it is made from, and what is refused."""

import base64
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import draw_domain
from PIL import Image

import ucds
from ucds.labels.cluster_labels import ClusterLabels
from ucds.page import thumbnails
from ucds.page.thumbnails import COLUMNS

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

CPU = ucds.Compute("cpu")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content["fixed"] | content["now"]


def text_of(page: str) -> str:
    return " ".join(
        re.sub(r"<[^>]*>", " ", page.partition("<template")[2].partition("</template>")[0]).split()
    )


def test_the_page_holds_the_clusters_that_predict_finds(
    client: Path, pictures: Path, page_file: Path
) -> None:
    data = data_of(page_file.read_text())
    found = ucds.predict(client, pictures, compute=CPU)
    sure = (100 * found.confidence).astype(int).tolist()
    expected = zip(found.ids, found.clusters.tolist(), sure, strict=True)
    assert set(zip(data["ids"], data["clusters"], data["sure"], strict=True)) == set(expected)
    assert data["clusters"] == sorted(data["clusters"])


def test_clusters_that_a_person_joined_are_no_collapse(client: Path, tmp_path: Path) -> None:
    review = ucds.Review(shutil.copytree(client, tmp_path / "run"))
    review.join(sorted(set(review.clusters.values())))
    done = ucds.report(review.finish(tmp_path / "joined").path, compute=CPU)
    assert not [one for one in done.warnings if "collapsed" in one or "empty" in one]


def test_the_page_shows_why_there_are_so_many_clusters(client: Path, tmp_path: Path) -> None:
    run = shutil.copytree(client, tmp_path / "run")
    assert 'id="number"' not in ucds.report(run, compute=CPU).path.read_text()
    evidence: dict[str, Any] = {"asked": "2..5", "number": 3, "low": 3, "high": 4, "candidates": [2, 3, 4, 5]}
    evidence |= {"stability": [0.5, 0.9, 0.8, 0.4], "separation": [0.2, 0.5, 0.5, 0.3], "clear": True}
    (run / "clusters.json").write_text(json.dumps(evidence))
    done = ucds.report(run, compute=CPU)
    page = done.path.read_text()
    assert "The number of clusters, 3, was chosen from 2 to 5; 3 to 4 are about as good." in done.summary
    assert "Why 3 clusters" in text_of(page)
    assert "Clusters Stability Separation Score 2 0.50 0.20 0.10 3 0.90 0.50 0.45 4" in text_of(page)
    assert 'points="2,-0.1 3,-0.45 4,-0.4 5,-0.12 "' in page  # the score
    assert '<rect class="plausible" x="3" y="-1" width="1"' in page
    assert "No number of clusters stands out" not in " ".join(done.warnings)
    evidence["separation"] = [0.2, 0.3, 0.3, 0.2]
    (run / "clusters.json").write_text(json.dumps(evidence))
    done = ucds.report(run, compute=CPU)
    assert "No number of clusters stands out" in " ".join(done.warnings)
    assert "in <code>ucds review</code>, or" in done.path.read_text()
    for damage in ("[]", '{"number": 3}', json.dumps(evidence | {"candidates": [2]})):
        (run / "clusters.json").write_text(damage)
        with pytest.raises(ucds.DamagedFileError, match=r"clusters.json is damaged: delete it"):
            ucds.report(run, compute=CPU)


def test_the_page_needs_nothing_but_itself_and_a_name_of_a_file_is_text(page_file: Path) -> None:
    page = page_file.read_text()
    assert any("onerror" in name for name in data_of(page)["ids"])
    assert "<img" not in page.partition("<script>")[0]
    assert re.findall(r'<[^>]*(?:src|href)="(?!#|data:)([^"]*)"', page.partition("<script>")[0]) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]


def test_the_sheets_hold_every_picture_in_its_place(pictures: Path, page_file: Path) -> None:
    page = page_file.read_text()
    data = data_of(page)
    (sheet,) = re.findall(r'id="sheet-\d+">([^<]*)</script>', page)
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet))).convert("RGB")).astype(int)
    side = image.shape[1] // COLUMNS
    assert image.shape == (-(-len(data["ids"]) // COLUMNS) * side, COLUMNS * side, 3)
    for place, name in enumerate(data["ids"]):
        row, column = divmod(place, COLUMNS)
        cell = image[row * side : (row + 1) * side, column * side : (column + 1) * side]
        original = Image.open(pictures / name).convert("RGB").resize((side, side))
        assert np.abs(cell - np.asarray(original).astype(int)).mean() < 8, name


def test_the_summary_says_what_was_found(client: Path, page_file: Path, labels: ClusterLabels) -> None:
    text, data = text_of(page_file.read_text()), data_of(page_file.read_text())
    sizes = np.bincount(data["clusters"], minlength=3)
    assert f"37 images in 3 clusters. The largest has {sizes.max()}, the smallest {sizes.min()}." in text
    assert "37 images have a label of the provider." in text
    answers = dict(zip(labels.ids, labels.labels.tolist(), strict=True))
    assert data["labels"] == [answers[name] for name in data["ids"]]
    assert f"{len(data['twins'])} images are nearly the same as another one" in text
    assert {"disc/0.png", "disc/copy.png"} <= {data["ids"][i] for i in data["twins"]}
    evidence = json.loads((client / "transfer.json").read_text())
    assert f"{evidence['own_agreement']:.3f}" in text
    assert f"{evidence['trust']:.3f}" in text
    stability = json.loads((client / "stability.json").read_text())
    assert f"Repeated clusterings agree to {stability['own_agreement']:.2f} of 1" in text
    assert stability["second_opinion"]["sentence"][1:] + "." in text
    assert ("due to chance" in text) == stability["doubtful"]
    table = page_file.read_text().partition("Evidence of the transfer guard")[2].partition("</table>")[0]
    assert table.count('<th scope="row">') == len(evidence.keys() - {"sentence"})  # each figure has words


def test_an_image_without_a_label_of_the_provider_is_shown_with_none(
    client: Path, labels: ClusterLabels, tmp_path: Path
) -> None:
    run = shutil.copytree(client, tmp_path / "run")
    (run / "labels.json").unlink()
    replace(labels, ids=labels.ids[:9], labels=labels.labels[:9]).save(run / "labels.json")
    data = data_of(ucds.report(run, compute=CPU).path.read_text())
    known = dict(zip(labels.ids[:9], labels.labels.tolist(), strict=False))
    assert data["labels"] == [known.get(name, -1) for name in data["ids"]]


@pytest.mark.parametrize("doubtful", [True, False])
@pytest.mark.parametrize("overconfident", [True, False])
def test_clusters_that_depend_on_chance_or_seem_too_sure_are_warned_of_once(
    client: Path, tmp_path: Path, doubtful: bool, overconfident: bool
) -> None:
    run = shutil.copytree(client, tmp_path / "run")
    stability = {"own_agreement": 0.41, "doubtful": doubtful, "overconfident": overconfident}
    (run / "stability.json").write_text(json.dumps(stability))
    done = ucds.report(run, compute=CPU)
    assert any("agree to 0.41 of 1" in sentence for sentence in done.summary)
    warned = [sentence for sentence in done.warnings if "to only 0.41" in sentence]
    assert len(warned) == (doubtful or overconfident)
    for sentence in warned:
        assert ("due to chance" if doubtful else "than the confidence says") in sentence


def test_with_class_folders_the_scores_are_those_of_evaluate(
    client: Path, pictures: Path, page_file: Path
) -> None:
    overall = ucds.evaluate(client, pictures, client / "scores.json", compute=CPU).overall
    text = text_of(page_file.read_text())
    assert f"Accuracy {overall.accuracy:.1%} NMI {overall.nmi:.3f} ARI {overall.ari:.3f}" in text
    assert f"{overall.accuracy:.1%} are in the cluster that matches their folder" in text


def test_the_uniform_line_is_one_over_the_number_of_clusters(page_file: Path) -> None:
    page = page_file.read_text().partition("</template>")[0]
    assert "1/3 = 33.3%" in page
    sizes = np.bincount(data_of(page_file.read_text())["clusters"], minlength=3)
    line = re.search(r'class="uniform"[^>]*y1="([\d.]+)"', page)
    assert line is not None
    tops = [float(y) for y in re.findall(r'<rect x="[\d.]+" y="([\d.]+)"', page)]
    for size, top in zip(sizes, tops, strict=True):
        assert (size / 37 > 1 / 3) == (top < float(line[1]))


def test_equal_runs_give_equal_pages(client: Path, page_file: Path, tmp_path: Path) -> None:
    again = ucds.report(client, out=tmp_path / "again.html", compute=CPU)
    assert again.path.read_bytes() == page_file.read_bytes()
    assert again.samples == 37


def test_other_images_than_the_training_set_are_called_so(
    client: Path, pictures: Path, tmp_path: Path
) -> None:
    shutil.copytree(pictures / "disc", tmp_path / "part")
    draw_domain(tmp_path / "others", ("white", "green"), 5, count=4)
    for folder, count in (("others", 12), ("part", 13)):
        done = ucds.report(client, tmp_path / folder, tmp_path / "others.html", compute=CPU)
        assert done.samples == count
        told = "The model was trained on other images than these." in done.warnings
        assert told == (folder == "others")
        assert "few for" not in " ".join(done.warnings)  # it was trained on enough
    page = done.path.read_text()
    assert data_of(page)["labels"] is None  # the labels are those of other images, even of equal names
    assert "Compared with your folders" not in page


def test_a_run_whose_samples_are_gone_asks_for_them(client: Path, tmp_path: Path) -> None:
    run = shutil.copytree(client, tmp_path / "run")
    described = json.loads((run / "run.json").read_text()) | {"images": str(tmp_path / "gone")}
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(ucds.InputError, match="gone, which is gone: give their new folder as `images`"):
        ucds.report(run)
    del described["images"]
    (run / "run.json").write_text(json.dumps(described))
    with pytest.raises(ucds.InputError, match="does not say where its samples lie"):
        ucds.report(run)


def test_a_damaged_file_of_the_run_is_named(client: Path, pictures: Path, tmp_path: Path) -> None:
    run = shutil.copytree(client, tmp_path / "run")
    (run / "transfer.json").write_text("{half")
    with pytest.raises(ucds.DamagedFileError, match=r"transfer.json is damaged: delete it"):
        ucds.report(run, pictures, tmp_path / "never.html")
    assert not (tmp_path / "never.html").exists()


def test_thumbnails_are_compressed_until_all_sheets_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(256, size=(300, 32, 32, 3), dtype=np.uint8)
    best = sum(map(len, thumbnails.lay_out(noise)))
    for share in (0.9, 0.5):
        monkeypatch.setattr(thumbnails, "MOST_BYTES", int(share * best))
        sheets = thumbnails.lay_out(noise)
        assert len(sheets) == 2  # none is left out
        assert sum(map(len, sheets)) <= share * best
