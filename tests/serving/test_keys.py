"""The life of a key of a client, from its making to its end, and the file of the key that signs receipts."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_kit import run_command, run_successfully
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from ledger_kit import charge
from pydantic import ValidationError
from typer.testing import CliRunner

from ucds.cli.options import app
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.labels.wire import Receipt, ServiceInfo
from ucds.serving import log
from ucds.serving.keys import keep_secret, make_secret, parse_end
from ucds.serving.ledger import Ledger
from ucds.serving.problems import Refusal
from ucds.serving.signing import Signer
from ucds.serving.verify import verify


def state_of(ledger: Ledger, secret: str, address: str | None = None) -> str:
    try:
        return ledger.authenticate(secret, address).name
    except Refusal as error:
        return error.kind


def test_secrets_differ_and_only_their_hash_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    assert len({make_secret() for _ in range(100)}) == 100
    secret = ledger.add_key("anna", 5)
    assert secret.startswith("ucds_")
    assert len(secret) == 48
    everything = b"".join(path.read_bytes() for path in tmp_path.glob("ledger*"))
    assert secret.encode() not in everything
    assert keep_secret(secret).hash.encode() in everything
    assert (tmp_path / "ledger.sqlite").stat().st_mode & 0o077 == 0


def test_two_secrets_share_a_budget_for_a_time_and_a_revoked_name_is_free(
    ledger: Ledger, tmp_path: Path
) -> None:
    first = ledger.add_key("anna", 5)
    second = ledger.renew_key("anna", timedelta(seconds=0.3))
    for number, secret in enumerate((first, second)):
        charge(ledger, ledger.authenticate(secret), number)
    (key,) = ledger.list_keys()
    assert key.used == 2
    assert [secret.tail for secret in key.secrets] == [first[-4:], second[-4:]]
    time.sleep(0.35)
    assert [state_of(ledger, secret) for secret in (first, second)] == ["expired-key", "anna"]
    third = ledger.renew_key("anna")
    assert [state_of(ledger, one) for one in (first, second, third)] == ["unknown-key", "anna", "anna"]
    with pytest.raises(InputError, match="already"):
        ledger.add_key("anna", 1)
    ledger.revoke_key("anna")
    with pytest.raises(InputError, match="revoked already"):
        ledger.revoke_key("anna")
    fourth = ledger.add_key("anna", 7)
    assert [state_of(ledger, secret) for secret in (third, fourth)] == ["revoked-key", "anna"]
    ledger.set_key("anna", budget=8)
    assert [key.terms.budget for key in ledger.list_keys()] == [5, 8]
    assert verify(tmp_path).faults == ()


def test_a_key_bound_to_networks(ledger: Ledger) -> None:
    secret = ledger.add_key("anna", 5, networks=["10.0.0.0/8", "2001:db8::/32"])
    for address in ("10.2.3.4", "2001:db8::9", "::ffff:10.2.3.4", None):
        assert state_of(ledger, secret, address) == "anna"
    for address in ("11.2.3.4", "2001:db9::9", "testclient", ""):
        assert state_of(ledger, secret, address) == "not-for-you"
    ledger.set_key("anna", networks=["2001:db8:1:2:3::/80", "2001:db8:5::7"])
    shown = [str(network) for network in ledger.list_keys()[0].terms.networks]
    assert shown == ["2001:db8:1:2::/64", "2001:db8:5::/64"]
    for address in ("2001:db8:1:2::9", "2001:db8:1:2:ffff::", "2001:db8:5:0:1::"):
        assert state_of(ledger, secret, address) == "anna"
    for address in ("2001:db8:1:3::9", "2001:db8:5:1::7"):
        assert state_of(ledger, secret, address) == "not-for-you"
    ledger.set_key("anna", networks=[])
    assert state_of(ledger, secret, "11.2.3.4") == "anna"


def test_terms_that_cannot_be_are_refused(ledger: Ledger) -> None:
    ledger.add_key("anna", 5)
    for changes in ({"budget": -1}, {"budget": 2**53}, {"rate": 0.0}, {"rate": float("nan")}):
        with pytest.raises(InputError, match="cannot be used: a (budget|rate) is"):
            ledger.set_key("anna", **changes)
    for networks in (["10.0.0.1/8"], ["here"], [""]):
        with pytest.raises(InputError, match="a network is written like 10.0.0.0/8"):
            ledger.set_key("anna", networks=networks)
    for change in (ledger.renew_key, ledger.revoke_key, ledger.set_key):
        with pytest.raises(InputError, match="no key of the name 'bert'"):
            change("bert")
    for name in ("", "a b", "x" * 65, "-a", "a\n", "é", make_secret()):
        with pytest.raises(InputError, match="cannot name a key: a name has"):
            ledger.add_key(name, 1)
    with ledger.reading() as (_, state):
        assert state.number == 2


def test_each_change_names_its_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("x" * 65, "two\nlines", "\udcff"):
        monkeypatch.setenv("UCDS_OPERATOR", bad)
        with pytest.raises(InputError, match="UCDS_OPERATOR must be a name of at most 64 printable letters"):
            Ledger(tmp_path, create=True)
    monkeypatch.setenv("UCDS_OPERATOR", "anna")
    with closing(Ledger(tmp_path, create=True)) as book:
        book.add_key("clinic", 1)
    monkeypatch.setenv("UCDS_OPERATOR", "bert")
    with closing(Ledger(tmp_path)) as book:
        book.revoke_key("clinic")
        with book.reading() as (connection, _):
            entries = [(entry.kind, entry.operator) for entry in log.read_entries(connection)]
    assert entries == [("Begun", "anna"), ("KeyAdded", "anna"), ("KeyRevoked", "bert")]


def test_ends_are_read_as_people_write_them() -> None:
    now = datetime.now(UTC)
    for text, hours in (("2d", 48), ("12h", 12), ("30m", 0.5)):
        end = datetime.fromisoformat(parse_end(text) or "")
        assert abs(end - now - timedelta(hours=hours)) < timedelta(seconds=5)
    assert parse_end("2031-02-03T04:05+02:00") == "2031-02-03T02:05:00.000+00:00"
    assert parse_end("2031-02-03") == "2031-02-03T00:00:00.000+00:00"
    assert parse_end("never") is None
    for text in ("", "soon", "-1d", "2031-13-01", "9999999d", "0001-01-01T00:00+14:00"):
        with pytest.raises(InputError, match="cannot end a key"):
            parse_end(text)


def test_the_key_of_signatures_is_made_once_for_its_owner_alone_and_no_other_is_read(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        publics = {signer.public for signer in pool.map(Signer.open, [path] * 8)}
    assert len(publics) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]
    other = rsa.generate_private_key(65537, 1024)
    for content in (b"", other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="not a file with an Ed25519 key"):
            Signer.open(path)


SMALL_ORDERS = [  # the points of orders 1, 2, 4 and 8, and other ways to write them
    *("01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80", "01" + "00" * 30 + "80"),
    *("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "ed" + "ff" * 30 + "7f"),
    *("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "ee" + "ff" * 30 + "7f"),
    *("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85", "ec" + "ff" * 31),
]


def test_no_key_of_small_order_signs_anything(ledger: Ledger) -> None:
    for key in (*SMALL_ORDERS, "12", "x" * 64):
        for form in (Receipt, ServiceInfo):  # so the client refuses the service
            with pytest.raises(ValidationError, match=r"signer\n.*(small order|pattern)"):
                form.model_validate({"signer": key})
        for use in (ledger.trust, lambda named: verify(ledger.place, signers=[named])):
            with pytest.raises(InputError, match="`signer` is a public key"):
                use(key)


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
    "ledger accept-loss": [["--checkpoints", "{junk}"], ["--checkpoints", "{folder}/absent"]],
    "ledger archive": [["--out", "{junk}"], ["--out", "{folder}"], ["--out", "{folder}/new"]],
}
PLACES = ("", "mysql://host/name", "postgresql://h:port/x", "postgresql://anna@host/geheim@x", "sqlite://")
PLACES += ("sqlite:///no/such/folder/ledger.sqlite", "postgresql://anna:geheim@127.0.0.1:1/none")
PLACES += ("{junk}", "{folder}/no/ledger", "{folder}/none")


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
        assert "geheim" not in str(error)  # the password

    for words in BAD[command]:
        refuse(*words, "--ledger", "{folder}")
    for place in PLACES if command == "ledger verify" else ():
        refuse("--ledger", place)
    assert Ledger(tmp_path).state() == before
    names = {path.name for path in tmp_path.iterdir()}
    assert names <= {"junk", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"}
