"""The commands `keys` and `ledger`, on a file and with what clients kept."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from serving_kit import NPY, FakeLabeller, npy, running, vector
from typer.testing import CliRunner, Result

from ucds.cli.app import app
from ucds.errors import InputError
from ucds.labels.receipts import keep_receipt
from ucds.labels.wire import LabelAnswer
from ucds.serving.checkpoints import CheckpointWriter, parse_place
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer


def run(*arguments: str | Path) -> Result:
    import ucds.cli  # noqa: F401  (it adds the commands)

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments: str | Path) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_the_life_of_a_key_by_commands(tmp_path: Path) -> None:
    missing = run("keys", "list", "--ledger", tmp_path).exception
    assert isinstance(missing, InputError)
    assert "there is no ledger" in str(missing)
    first = succeed("keys", "add", "anna", "--budget", "7", "--expires", "90d", "--ledger", tmp_path)
    second = succeed("keys", "rotate", "anna", "--grace-hours", "2", "--ledger", tmp_path)
    succeed("keys", "set-budget", "anna", "9", "--ledger", tmp_path)
    succeed("keys", "set-rate", "anna", "2.5", "--ledger", tmp_path)
    succeed("keys", "expire", "anna", "never", "--ledger", tmp_path)
    (record,) = json.loads(succeed("keys", "list", "--json", "--ledger", tmp_path))
    expected = {"name": "anna", "budget": 9, "rate": 2.5, "expires": None, "revoked": None}
    assert record | expected == record
    assert record["tails"] == [first[-4:], second[-4:]]
    table = succeed("keys", "list", "--ledger", tmp_path)
    assert f"{first[-4:]} {second[-4:]}" in table
    assert first not in table
    head, row = table.splitlines()
    assert len(row) < 80  # a terminal's width
    assert row[: head.index("left") + 4].endswith("     9")
    succeed("keys", "revoke", "anna", "--ledger", tmp_path)
    assert "revoked 20" in succeed("keys", "list", "--ledger", tmp_path)
    anchor = succeed("ledger", "verify", "--ledger", tmp_path)
    assert anchor.startswith("6:")
    succeed("ledger", "verify", "--ledger", tmp_path, "--anchor", anchor)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database, database:
        database.execute("UPDATE keys SET budget = 8")
    faulty = run("ledger", "verify", "--ledger", tmp_path)
    assert faulty.exit_code == 2
    assert "fault: key 'anna' has budget 8, but the log says 9" in faulty.stderr


@pytest.mark.parametrize("wrong", [("bad name",), ("anna", "--expires", "soon")])
def test_a_key_that_cannot_be_leaves_no_ledger(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    refused = run("keys", "add", *wrong, "--budget", "7", "--ledger", tmp_path)
    assert isinstance(refused.exception, InputError)
    assert not list(tmp_path.iterdir())


def test_a_rate_that_is_none_of_both_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.add_key("anna", 1)
    assert isinstance(run("keys", "set-rate", "anna", "fast", "--ledger", tmp_path).exception, InputError)
    succeed("keys", "set-rate", "anna", "none", "--ledger", tmp_path)


def test_receipts_and_checkpoints_are_compared_with_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    key, kept = ledger.add_key("anna", 100), tmp_path / "labels.json.receipts"
    signer = Signer.open(tmp_path / "key.pem")
    ledger.set_signer(signer.public)
    marks = tmp_path / "checkpoints"
    writer = CheckpointWriter(ledger, signer, parse_place(marks), every=1)
    with (
        running(FakeLabeller(), ledger, signer=signer, checkpoints=writer) as service,
        service.client(key) as client,
    ):
        for number in range(3):
            answer = client.post("/v1/labels", content=npy([vector(number)]), headers=NPY)
            receipt = LabelAnswer.model_validate_json(answer.content).receipt
            assert receipt is not None
            content = next(iter(ledger.known(ledger.list_keys()[0], "d" * 32, _contents(number))))
            keep_receipt(kept, receipt, {content: number})
    evidence = ("--receipts", kept, "--checkpoints", marks)
    done = run("ledger", "verify", "--ledger", tmp_path, *evidence)
    assert done.exit_code == 0, done.output
    assert "receipts and checkpoints agree" in done.stderr
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database, database:
        # wound back to its third entry, in agreement with itself
        database.execute("DELETE FROM audit WHERE number > 3")
        database.execute("DELETE FROM answers WHERE entry > 3")
        database.execute("UPDATE keys SET used = 1, last_used = (SELECT time FROM audit WHERE number = 3)")
        database.execute("UPDATE head SET entries = 3, hash = (SELECT hash FROM audit WHERE number = 3)")
    succeed("ledger", "verify", "--ledger", tmp_path)
    for option, path in (evidence[:2], evidence[2:]):
        done = run("ledger", "verify", "--ledger", tmp_path, option, path)
        assert done.exit_code == 2
        assert "the log ends with entry 3, but" in done.stderr


def _contents(number: int) -> list[bytes]:
    import numpy as np

    from ucds.data.content import content_key

    return [content_key(np.asarray(vector(number), "<f4").tobytes())]


def test_another_signing_key_is_a_decision(ledger: Ledger, tmp_path: Path) -> None:
    ledger.set_signer(Signer.open(tmp_path / "old.pem").public)
    with pytest.raises(InputError, match="ledger sign-with"):
        ledger.set_signer(Signer.open(tmp_path / "new.pem").public)
    public = succeed("ledger", "sign-with", tmp_path / "new.pem", "--ledger", tmp_path)
    ledger.set_signer(public)
    assert ledger.read_head().entries == 2
    assert ledger.verify().faults == ()
