"""Tests of `ucds audit` from samples to report: a model that memorises, one that knows nothing, a service."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit_kit import WIDTH, HalfSpace, draw, save_nearest
from cli_kit import run_successfully
from serving_kit import running

from ucds.auditing import subject
from ucds.auditing.attacks import Price, price_curve, price_of
from ucds.auditing.audit import QUICK, Effort, audit
from ucds.auditing.report import Findings
from ucds.errors import InputError, RefusedError
from ucds.labels.client import LabelClient
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.training.model_file import load_model
from ucds.training.options import Compute

EFFORT = Effort(samples=150, variants=5, boundary=15, shadows=6)


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Folder with two domains of members and two of others, all of one distribution."""
    np.savez(tmp_path / "members.npz", a=draw(60, 1), b=draw(60, 2))
    np.savez(tmp_path / "others.npz", c=draw(75, 3), d=draw(75, 4))
    return tmp_path


def run_audit(folder: Path, effort: Effort = EFFORT, **changes: Any) -> Findings:
    """Audit the run in a folder, or a service in its place."""
    given: dict[str, Any] = {"run": folder / "run", "out": folder / "report.html", "compute": Compute("cpu")}
    given |= {name: folder / f"{name}.npz" for name in ("members", "others")} | changes
    return audit(**given, effort=effort)


def members_of(folder: Path) -> np.ndarray:
    return np.concatenate(list(np.load(folder / "members.npz").values()))


def test_a_model_that_memorises_is_found_out(samples: Path) -> None:
    """Over-fitted on purpose: a prototype for each member."""
    save_nearest(samples / "run", members_of(samples))
    found = run_audit(samples)
    areas = {attack.name: attack.success.auc_low for attack in found.membership if attack.success}
    assert max(areas["agreement"], areas["boundary"]) > 0.7
    assert found.domains.success.auc == 1  # of ten bags
    assert "finds out for" in found.summary()[0]


def test_a_model_of_other_data_gives_nothing_away(samples: Path) -> None:
    save_nearest(samples / "run", draw(3, 99))
    attacks = run_audit(samples).membership
    assert len(attacks) == 3
    for attack in attacks:
        assert attack.success.auc_low <= 0.5 <= attack.success.auc_high


def test_page_and_figures_agree_and_equal_seeds_give_equal_figures(samples: Path) -> None:
    save_nearest(samples / "run", draw(5, 99))
    quick = replace(QUICK, samples=60)
    first, again = run_audit(samples, quick), run_audit(samples, quick, out=samples / "again.html")
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert json.loads((samples / "report.json").read_text()) == json.loads(json.dumps(first.to_dict()))
    page = (samples / "report.html").read_text()
    for attack in first.membership:
        assert f"{attack.success.auc:.3f}" in page
    assert "<script" not in page
    assert "Guarantee: the model has none" in page


def test_what_cannot_be_audited_is_refused(samples: Path) -> None:
    save_nearest(samples / "run", draw(3, 99))
    np.save(samples / "few.npy", draw(5, 7))
    refusals: dict[str, dict[str, Any]] = {
        "all of the others are members too": {"others": samples / "members.npz"},
        "needs 20 members and 20 others, not 120 and 5": {"others": samples / "few.npy"},
        "either a run or a service": {"run": None},
        r"report\.json is the name of the figures": {"out": samples / "report.json"},
    }
    for words, changes in refusals.items():
        with pytest.raises(InputError, match=words):
            run_audit(samples, **changes)
    assert not (samples / "report.html").exists()


def test_a_service_is_audited_over_http_within_its_budget(samples: Path) -> None:
    save_nearest(samples / "run", members_of(samples))
    effort = Effort(samples=30, variants=2, boundary=2, shadows=4)
    few_bytes = Limits(max_request_bytes=2000)  # fewer than a batch of the audit has
    labeller = ModelLabeller(load_model(samples / "run", role="source"))
    with (
        closing(Ledger(samples, create=True)) as book,
        running(labeller, book, few_bytes) as service,
        LabelClient(service.url, book.add_key("rich", 100_000)) as rich,
        LabelClient(service.url, book.add_key("poor", 70)) as poor,
    ):
        remote = run_audit(samples, effort, run=None, client=rich)
        with pytest.raises(RefusedError, match="budget ended after"):
            run_audit(samples, effort, run=None, client=poor)
        if not torch.cuda.is_available():
            with pytest.raises(InputError, match="CUDA"):
                run_audit(samples, effort, run=None, client=rich, compute=Compute("cuda"))
    local = run_audit(samples, effort)
    assert (remote.membership, remote.queries) == (local.membership, local.queries)


def test_the_command_prints_what_was_found(samples: Path) -> None:
    save_nearest(samples / "run", draw(3, 99))
    data = ("--members", samples / "members.npz", "--others", samples / "others.npz")
    given = ("--out", samples / "report.html", "--quick", "--accelerator", "cpu")
    told = run_successfully("audit", samples / "run", *data, *given).err
    assert "Membership: the strongest attack is" in told
    assert "Copying: " in told


def test_the_price_curve_rises_to_the_price() -> None:
    vectors = draw(900, 0)
    curve = price_curve(vectors, vectors[:, :3].argmax(1), np.random.default_rng(0), (50, 200))
    assert [point.labels for point in curve] == [50, 200, 600]
    assert curve[-1].agreement > curve[0].agreement
    assert price_of([Price(50, 0.5), Price(100, 0.91)]) == 100
    assert price_of([Price(50, 0.5)]) is None


def test_each_attack_asks_about_samples_of_all_domains(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples lie in the order of their domains: the first few would be those of one domain."""
    domains = [np.full((40, WIDTH), 10.0 * (d + 1), np.float32) + draw(40, d) for d in range(3)]
    np.savez(samples / "members.npz", a=domains[0], b=domains[1], c=domains[2])
    save_nearest(samples / "run", draw(3, 99))
    recorder = HalfSpace(128)
    monkeypatch.setattr(subject, "ModelSubject", lambda stored, runtime: recorder)
    effort = replace(QUICK, boundary=2, variants=1, shadows=2)  # 20 vectors of each side
    run_audit(samples, effort)
    boundary = next(rows for rows in recorder.asked if len(rows) == 20)
    nearest = np.abs(boundary.mean(1).numpy()[:, None] - [10, 20, 30]).argmin(1)
    assert set(nearest) == {0, 1, 2}
