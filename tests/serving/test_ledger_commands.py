"""The commands `keys` and `ledger`, on a file and with what a service and its clients kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_kit import run_command, run_successfully
from ledger_kit import Provider, behind, charge, make_key
from typer.testing import CliRunner

from ucds.cli.options import app
from ucds.errors import UserError
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer


def succeed(*arguments: object) -> str:
    return run_successfully(*arguments).out.strip()


def test_the_life_of_a_key_by_commands(tmp_path: Path) -> None:
    place = ("--ledger", tmp_path)
    assert "there is no ledger" in run_command("keys", "list", *place).err
    first = succeed("keys", "add", "anna", "--budget", "7", "--expires", "90d", "--rate", "2", *place)
    succeed("keys", "set", "anna", "--budget", "9", "--rate", "none", "--expires", "never", *place)
    succeed("keys", "set", "anna", "--from", "10.0.0.0/8", "--from", "192.168.1.0/24", *place)
    second = succeed("keys", "set", "anna", "--new-secret", *place)
    (record,) = json.loads(succeed("keys", "list", "--json", *place))
    expected = {"name": "anna", "budget": 9, "remaining": 9, "rate": None, "expires": None, "revoked": None}
    assert record | expected == record
    assert record["networks"] == ["10.0.0.0/8", "192.168.1.0/24"]
    assert record["tails"] == [first[-4:], second[-4:]]
    assert not run_successfully("keys", "set", "anna", "--from", "any", "--quiet", *place).err
    assert json.loads(succeed("keys", "list", "--json", *place))[0]["networks"] == []
    table = succeed("keys", "list", *place)
    assert f"{first[-4:]} {second[-4:]}" in table
    assert first not in table
    head, row = table.splitlines()
    assert len(row) < 80  # a terminal's width
    assert row[: head.index("left") + 4].endswith("     9")
    succeed("keys", "revoke", "anna", *place)
    assert "revoked 20" in succeed("keys", "list", *place)
    assert "0 answers" in run_command("ledger", "forget", "anna", *place).err
    assert "forgotten, revoked 20" in succeed("keys", "list", *place)
    assert succeed("ledger", "verify", *place).startswith("8:")


BAD = {
    "keys add": [
        ["bad name", "--budget", "7"],
        *(["bert", "--budget", "7", "--rate", rate] for rate in ("fast", "", "nan", "0")),
        ["bert", "--budget", "7", "--expires", "soon"],
        ["bert", "--budget", "7", "--from", "x"],
    ],
    "keys set": [["anna"], ["bert", "--budget", "7"], ["anna", "--rate", "fast"], ["bert", "--new-secret"]],
    "keys revoke": [["bert"]],
    "ledger forget": [["anna"], ["bert"]],
    "ledger verify": [
        [option, path]
        for option in ("--receipts", "--checkpoints", "--archive")
        for path in ("{junk}", "{folder}", "{folder}/absent")
    ],
    "ledger accept-loss": [
        [],
        ["--checkpoints", "{junk}"],
        ["--checkpoints", "{folder}/absent"],
        ["--signing-key", "{junk}"],
        ["--signing-key", "{folder}/no/key"],
    ],
    "ledger archive": [["--out", "{junk}"], ["--out", "{folder}"], ["--out", "{folder}/new"]],
}
PLACES = ("", "{junk}", "{folder}/no/ledger", "{folder}/none", "mysql://host/name", "postgresql://h:port/x")


@pytest.mark.parametrize("command", BAD)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "junk").write_bytes(b"\xff junk" * 500)
    Ledger(tmp_path, create=True).add_key("anna", 1)
    before = Ledger(tmp_path).state()

    def refuse(*words: str) -> None:
        filled = [word.format(junk=tmp_path / "junk", folder=tmp_path) for word in words]
        error = CliRunner().invoke(app, [*command.split(), *filled]).exception
        assert isinstance(error, UserError), words
        assert "\n" not in str(error)

    for words in BAD[command]:
        refuse(*words, "--ledger", "{folder}")
    for place in PLACES if command != "keys add" else PLACES[:3]:
        refuse(*BAD[command][0], "--ledger", place)
    assert Ledger(tmp_path).state() == before
    names = {path.name for path in tmp_path.iterdir()}
    assert names <= {"junk", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"}


def test_a_ledger_is_checked_archived_restored_and_accepted(provider: Provider, tmp_path: Path) -> None:
    place, key, marks = ("--ledger", tmp_path), make_key(provider.ledger), provider.marks
    for number in range(3):
        provider.keep(key, number)
    evidence = ("--receipts", provider.receipts, "--checkpoints", marks)
    provider.snapshots().close()
    charge(provider.ledger, key, 9)
    told = run_successfully("ledger", "verify", *place, *evidence).err
    assert "4 receipts and checkpoints agree" in told
    assert "names the last 2 entries" in told
    old = tmp_path / "old.jsonl"
    succeed("ledger", "archive", "--out", old, *place)
    assert "archived and were not read" in run_command("ledger", "verify", *place).err
    succeed("ledger", "verify", *place, *evidence, "--archive", old)
    provider.snapshots().close()
    provider.restore(8)
    succeed("ledger", "verify", *place)
    done = run_command("ledger", "verify", *place, "--checkpoints", marks)
    assert done.status == 2
    assert "fault: the checkpoint of" in done.err
    succeed("ledger", "accept-loss", "--checkpoints", marks, *place)
    assert "accepted" in run_command("ledger", "verify", *place, "--checkpoints", marks).err
    public = Signer.open(tmp_path / "new.pem").public
    succeed("ledger", "accept-loss", "--signing-key", tmp_path / "new.pem", *place)
    Ledger(tmp_path).set_signer(public)
    with behind(tmp_path) as connection:
        connection.exec_driver_sql("UPDATE log SET operator = 'mallory' WHERE number = 8")
    faulty = run_command("ledger", "verify", *place)
    assert faulty.status == 2
    assert "fault: entry 8 was changed, or one before it" in faulty.err
