"""Tests of folders in the layout of a hub: written, uploaded to a hub on this machine, and opened again."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ucds
from ucds.backbones import build_backbone, identity_backbone
from ucds.errors import InputError
from ucds.training.loaded import Model

MakeModel = Callable[..., Model]

VECTORS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """Speaks the part of the hub's protocol that an upload and a download of small files need."""

    files: dict[str, bytes]
    visibility: dict[str, Any]

    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        found: dict[str, Any] = {"errors": [], "warnings": []}  # of the card's metadata
        if self.path == "/api/repos/create":
            self.visibility.update(json.loads(body))
            found = {"url": f"http://{self.headers['Host']}/anna/clinic"}
        elif "/preupload/" in self.path:
            names = [entry["path"] for entry in json.loads(body)["files"]]
            found = {"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]}
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            found = {
                "commitUrl": f"http://{self.headers['Host']}/anna/clinic/commit/{COMMIT}",
                "commitOid": COMMIT,
                "hookOutput": "",
            }
        self.answer(json.dumps(found).encode())

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if "/tree/" in self.path:
            entries = [
                {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for file, content in self.files.items()
            ]
            self.answer(json.dumps(entries).encode())
        elif self.path.startswith("/api/models/anna/clinic"):
            siblings = [{"rfilename": file} for file in self.files]
            self.answer(json.dumps({"id": "anna/clinic", "sha": COMMIT, "siblings": siblings}).encode())
        elif "/resolve/" in self.path and name in self.files:
            content = self.files[name]
            self.answer(content, ETag=f'"{hashlib.sha256(content).hexdigest()}"')
        else:
            self.answer(b"{}", 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, type[Hub]]]:
    """A hub on this machine, and a cache of its own."""
    handler = type("EmptyHub", (Hub,), {"files": {}, "visibility": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


def test_what_is_pushed_comes_back_the_same(
    make_model: MakeModel, hub: tuple[str, type[Hub]], tmp_path: Path
) -> None:
    address, handler = hub
    model = make_model(identity_backbone(6))
    model.save(tmp_path / "run")
    (tmp_path / "run" / "log.jsonl").write_text("private")
    link = ucds.push_to_hub(tmp_path / "run", "anna/clinic", token="hf_x", endpoint=address)
    assert link == f"{address}/anna/clinic/commit/{COMMIT}"
    assert handler.files.keys() == {"README.md", "config.json", "model.safetensors"}
    assert handler.visibility.get("visibility") == "private"
    again = ucds.from_pretrained("anna/clinic", endpoint=address, compute=ucds.Compute("cpu"), role="target")
    np.testing.assert_array_equal(again.predict_proba(VECTORS), model.predict_proba(VECTORS))
    for name in ("anna/other", "no such/name/at all"):
        with pytest.raises(InputError, match="neither a folder nor a model of the hub"):
            ucds.from_pretrained(name, endpoint=address)


def test_a_card_that_was_edited_is_pushed_as_it_is(
    make_model: MakeModel, hub: tuple[str, type[Hub]], tmp_path: Path
) -> None:
    address, handler = hub
    done = ucds.export(make_model(identity_backbone(6)), tmp_path / "hub", form="hub")
    (done.path / "README.md").write_text("My own words.\n")
    ucds.push_to_hub(done.path, "anna/clinic", token="hf_x", endpoint=address)
    assert handler.files["README.md"] == b"My own words.\n"


def test_a_local_folder_is_opened_without_a_hub(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model(identity_backbone(6))
    done = ucds.export(model, tmp_path / "hub", form="hub")
    ucds.export(model, tmp_path / "hub", form="hub")  # over the earlier one
    assert {path.name for path in done.path.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    again = ucds.from_pretrained(done.path, compute=ucds.Compute("cpu"))
    np.testing.assert_array_equal(again.predict_proba(VECTORS), model.predict_proba(VECTORS))
    config = json.loads((done.path / "config.json").read_text())
    assert (config["model_type"], config["n_clusters"]) == ("ucds", 5)
    assert config["card"]["domains"] == ["a", "b"]
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds other things than an exported model"):
        ucds.export(model, tmp_path / "used", form="hub")


def test_the_card_says_how_the_model_was_made_and_names_no_path(
    make_model: MakeModel, tmp_path: Path
) -> None:
    backbone = build_backbone("ucds/oriented_edges", weights="none", input_size=32)
    model = make_model(backbone)
    model.save(tmp_path / "run")
    described = {"method": "consensus", "seed": 7, "settings": {"starts": 2, "tune": "head"}, "labels": "ab"}
    described |= {"images": "/home/anna/secret", "versions": {"ucds": "0.1.0"}, "data": "d" * 64}
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
