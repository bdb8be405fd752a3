"""The files under deploy/: proxies before a service that runs, the others by the programs that read them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

sys.path.append(str(Path(__file__).parents[1] / "serving"))  # for `postgres` and `serving_kit`

from postgres import postgresql
from serving_kit import (
    NPY,
    Clients,
    FakeMeanLabeller,
    Service,
    make_run,
    npy,
    running,
    serving_process,
    vector,
    wait_until,
)

from ucds.serving.ledger import Ledger
from ucds.training.inference import FEWEST_TO_CENTRE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def replaced(text: str, **words: str) -> str:
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    return text


@contextmanager
def process(*command: str | Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([*map(str, command)], env=os.environ | environment, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    ledger = Ledger(tmp_path)
    key = ledger.add_key("anna", 100)
    with running(FakeMeanLabeller(), ledger) as served:
        served.key = key
        yield served
    ledger.close()


def check_proxy(url: str, certificate: Path, key: str | None) -> None:
    """Ask through a proxy what clients ask, and what they must not reach."""
    trusted = ssl.create_default_context(cafile=certificate)
    shown = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, verify=trusted, headers=shown, timeout=60, trust_env=False) as client:

        def is_up() -> bool:
            try:
                return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_up, seconds=60)
        rows = [vector(1, serial) for serial in range(FEWEST_TO_CENTRE)]
        calibrated = client.post("/v1/calibration", content=npy(rows), headers=NPY)
        assert calibrated.status_code == 200, calibrated.text
        answer = client.post("/v1/labels", content=npy([vector(3), vector(5)]), headers=NPY)
        assert answer.json()["labels"] == [3, 5]
        assert answer.headers["ratelimit"] == '"budget";r=098'
        assert client.get("/v1/info").json()["budget"]["used"] == 2
        assert client.get("/openapi.json").status_code == 200
        for hidden in ("/metrics", "/healthz", "/", "/v1/labels/", "/v1/other"):
            assert client.get(hidden).status_code == 404, hidden
        assert client.get("/v1/info", headers={"Authorization": "Bearer ucds_no"}).status_code == 401
        assert client.post("/v1/labels", content=b"x" * (65 * 2**20), headers=NPY).status_code == 413


def test_the_proxies_and_the_page_name_every_path_for_clients(service: Service) -> None:
    offered = {path for path in service.app.openapi()["paths"] if path.startswith("/v1/")}
    (pattern,) = re.findall(r"location ~ (\S+) \{", (DEPLOY / "nginx.conf").read_text())
    (words,) = re.findall(r"@clients path (.*)", (DEPLOY / "Caddyfile").read_text())
    (row,) = re.findall(r"\| `deploy/nginx\.conf`, .*", (ROOT / "docs" / "deploy.md").read_text())
    assert len(offered) == 3
    assert {path for path in offered if re.search(pattern, path)} == offered
    assert {word for word in words.split() if word.startswith("/v1/")} == offered
    assert set(re.findall(r"`(/v1/\w+)`", row)) == offered


@contextmanager
def nginx_with(site: str, prefix: Path) -> Iterator[None]:
    """Run nginx with a site, everything that it writes below a folder of its own."""
    nginx = program("nginx")
    prefix.mkdir(mode=0o755)
    paths = "".join(
        f"{kind}_temp_path {prefix}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    who = "user root;" if os.geteuid() == 0 else ""
    main = f"{who} daemon off; pid {prefix}/pid; error_log {prefix}/error.log; events {{}}"
    (prefix / "nginx.conf").write_text(f"{main} http {{ access_log off; {paths}\n{site}\n}}")
    command = (nginx, "-p", prefix, "-c", prefix / "nginx.conf")
    tested = subprocess.run([*map(str, command), "-t"], capture_output=True, text=True, timeout=60)
    assert tested.returncode == 0, tested.stderr
    with process(*command):
        yield


def test_nginx_passes_on_what_clients_need(service: Service, tmp_path: Path) -> None:
    program("nginx")
    port, certificate = free_port(), make_certificate(tmp_path)
    site = replaced(
        (DEPLOY / "nginx.conf").read_text(),
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "labels.example.org": "localhost",
            "/etc/ssl/labels.pem": str(certificate),
            "/etc/ssl/private/labels.key": str(certificate),
            "127.0.0.1:8000": service.url.removeprefix("http://"),
        },
    )
    with nginx_with(site, tmp_path / "nginx"):
        check_proxy(f"https://localhost:{port}", certificate, service.key)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clients_do_not_notice_a_replica_that_is_killed_behind_nginx(tmp_path: Path) -> None:
    """Five times under load, on one PostgreSQL ledger: every answer is a 200, and every charge is exact."""
    program("nginx")
    run, port, replicas = make_run(tmp_path / "run"), free_port(), (free_port(), free_port())
    site = replaced(
        (DEPLOY / "nginx.conf").read_text(),
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port}",
            "ssl_certificate     /etc/ssl/labels.pem;": "",
            "ssl_certificate_key /etc/ssl/private/labels.key;": "",
            "ssl_protocols TLSv1.2 TLSv1.3;": "",
            "server 127.0.0.1:8000 max_fails=0;": "".join(
                f"server 127.0.0.1:{one} max_fails=0;" for one in replicas
            ),
        },
    )
    with postgresql() as place, ExitStack() as stack:

        def start(at: int) -> subprocess.Popen[str]:
            served = serving_process(run, "--ledger", place, "--port", str(at))
            return stack.enter_context(served)[0]

        book = Ledger(place)
        clients = Clients(book.add_key("anna", 10**9), count=8)
        try:
            _, victim = map(start, replicas)
            stack.enter_context(nginx_with(site, tmp_path / "nginx"))
            clients.url = f"http://127.0.0.1:{port}"
            for _ in range(5):
                clients.wait_for(60)
                victim.kill()
                victim.wait()
                clients.wait_for(60)
                victim = start(replicas[1])
            clients.wait_for(60)
            clients.finish()
        finally:
            clients.stop.set()
        assert clients.statuses == {200}
        assert clients.contradictions == []
        assert book.list_keys()[0].used == len(clients.labels)
        assert book.verify().faults == ()
        book.close()


def test_caddy_passes_on_what_clients_need(service: Service, tmp_path: Path) -> None:
    caddy, port, certificate = program("caddy"), free_port(), make_certificate(tmp_path)
    settings = "{\n admin off\n auto_https disable_redirects\n}\n"
    site = replaced(
        (DEPLOY / "Caddyfile").read_text(),
        **{"{$LABELS_HOST:localhost} {": f"{{$LABELS_HOST:localhost}} {{\n tls {certificate} {certificate}"},
    )
    (tmp_path / "Caddyfile").write_text(settings + site)
    places = {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    names = {
        "LABELS_HOST": f"https://localhost:{port}",
        "LABELS_UPSTREAM": service.url.removeprefix("http://"),
    }
    command = (caddy, "run", "--adapter", "caddyfile", "--config", tmp_path / "Caddyfile")
    with process(*command, **places, **names):
        check_proxy(f"https://localhost:{port}", certificate, service.key)


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost, and its key, in one file."""
    path = folder / "localhost.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    request = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        str(path),
        "-out",
        f"{path}.crt",
    ]
    subprocess.run([program("openssl"), "req", *request, *names], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def test_the_unit_is_one_that_systemd_takes_and_calls_safe(tmp_path: Path) -> None:
    analyze, unit = program("systemd-analyze"), tmp_path / "ucds.service"
    unit.write_text((DEPLOY / "ucds.service").read_text().replace("/opt/ucds/bin/ucds", "/bin/true"))
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (verified.returncode, verified.stderr) == (0, "")
    looked_at = [analyze, "security", "--offline=yes", "--threshold=20", str(unit)]  # 2.0 of 10
    assert subprocess.run(looked_at, capture_output=True, timeout=60).returncode == 0


def commands() -> list[list[str]]:
    """The command lines of `ucds` in the files."""
    found = [
        line.partition("=")[2].split()[1:]
        for line in (DEPLOY / "ucds.service").read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    for line in (DEPLOY / "compose.yaml").read_text().splitlines():
        if line.strip().startswith("command: [serve"):
            found.append(line.partition("[")[2].strip("]").replace(",", " ").split())
    return found


def test_the_options_of_the_service_are_those_it_has() -> None:
    import typer

    import ucds.cli  # noqa: F401  (it adds the commands)
    from ucds.cli.app import app

    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    assert len(commands()) == 2
    for words in commands():
        assert words[0] == "serve"
        assert {word for word in words if word.startswith("--")} <= known


def test_the_compose_file_names_what_is_there() -> None:
    yaml = pytest.importorskip("yaml")
    stack = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    build = stack["services"]["labels"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert set(stack["services"]["labels"]["depends_on"]) <= set(stack["services"])
    for name, part in stack["services"].items():
        assert set(part["networks"]) <= set(stack["networks"]), name
        for volume in part.get("volumes", ()):
            source = volume.split(":")[0]
            assert source.startswith("$") or source in stack["volumes"] or (DEPLOY / source).is_file(), volume
    assert "ports" not in stack["services"]["labels"]  # clients reach it through the proxy alone
    assert "ports" not in stack["services"]["ledger"]


def test_the_dockerfile_copies_what_is_there() -> None:
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
