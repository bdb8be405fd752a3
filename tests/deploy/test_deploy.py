"""The files under deploy/: proxies before a service that runs, the others by the programs that read them."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from label_service import client_of, files_with_a_body, make_certificate, nginx, replaced
from label_service import service as started
from ledger_kit import postgresql
from serving_kit import FakeMeanLabeller, Service, asking, free_port, make_run, running, vector, wait_until

from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify
from ucds.training.loaded import FEWEST_TO_CENTRE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service as it is deployed, on a Unix socket."""
    folder = tmp_path_factory.mktemp("deployed")
    with (
        closing(Ledger(folder, create=True)) as ledger,
        running(FakeMeanLabeller(), ledger, host=f"unix:{folder}/labels.sock") as served,
    ):
        yield served


@pytest.fixture
def service(deployed: Service) -> Service:
    """The same, asked with a key of its own."""
    return deployed.with_a_new_key()


@dataclass
class Proxy(Service):
    """A proxy that runs before a service, asked with the key of a client."""

    certificate: Path = Path()
    master: int = 0

    @classmethod
    def before(cls, service: Service, port: int, certificate: Path, master: int = 0) -> Proxy:
        url, key = f"https://localhost:{port}", service.key
        return cls(url, key=key, headers=service.headers, certificate=certificate, master=master)

    @property
    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)

    def client(self, key: str | None = None, address: str = "127.0.0.1") -> httpx.Client:
        """A client that asks from an address of this machine."""
        return client_of(self.url, str(key or self.key), address, self.trusted)

    def answers(self) -> bool:
        with suppress(httpx.TransportError), self.client() as client:
            return client.get("/openapi.json").status_code in (200, 503)
        return False


def check_proxy(proxy: Proxy) -> None:
    """Ask through a proxy what clients ask, and what they must not reach."""
    rows = [vector(1, serial) for serial in range(FEWEST_TO_CENTRE)]
    calibrated = proxy.ask(*rows, path="/v1/calibration")
    assert calibrated.status_code == 200, calibrated.text
    assert proxy.ask(vector(3), vector(5)).json()["labels"] == [3, 5]
    assert proxy.info()["balance"]["used"] == 2
    with proxy.client() as client:
        for hidden in ("/metrics", "/healthz", "/readyz", "/", "/v1/labels/", "/v1/other"):
            assert client.get(hidden).status_code == 404, hidden
    assert proxy.ask(vector(3), key="ucds_no").status_code == 401
    assert proxy.send(b"x" * (65 * 2**20)).status_code == 413


def test_the_proxies_name_every_path_for_clients(service: Service) -> None:
    with service.client() as client:
        offered = set(client.get("/openapi.json").json()["paths"])
    (pattern,) = re.findall(r"location ~ (\S+) \{", (DEPLOY / "nginx.conf").read_text())
    (words,) = re.findall(r"@clients path (.*)", (DEPLOY / "Caddyfile").read_text())
    assert len(offered) == 3
    assert {path for path in offered if re.search(pattern, path)} == offered
    assert {word for word in words.split() if word.startswith("/v1/")} == offered


@contextmanager
def nginx_before(folder: Path, *services: Service, **words: str) -> Iterator[Proxy]:
    """Run nginx with the file of `deploy/` before services, and wait until it answers."""
    program("nginx")
    port, upstreams = free_port(), [one.url.removeprefix("http://") for one in services]
    with nginx(folder, port, *upstreams, **words) as (certificate, master):
        proxy = Proxy.before(services[0], port, certificate, master)
        wait_until(proxy.answers, seconds=60)
        yield proxy


def hold_64(proxy: Proxy, trusted: ssl.SSLContext, stack: ExitStack, header: str = "X: {}") -> None:
    """Hold 64 connections of one address, each with a body that does not come; a header may number them."""
    for number in range(64):
        plain = stack.enter_context(proxy.connect())
        held = stack.enter_context(trusted.wrap_socket(plain, server_hostname="localhost"))
        held.sendall(proxy.head("Content-Length: 999", header.format(f"{number:x}"), host="localhost") + b"x")


def test_nginx_passes_on_what_clients_need(service: Service, tmp_path: Path) -> None:
    with nginx_before(tmp_path, service) as proxy:
        check_proxy(proxy)
        service.ledger.set_key(service.ledger.list_keys()[-1].name, networks=["10.0.0.0/8"])
        with proxy.client() as client:  # what a client says of its address is not passed on
            assert client.get("/v1/info", headers={"X-Forwarded-For": "10.1.2.3"}).status_code == 403


def test_nginx_counts_clients_of_ipv6_by_their_64_bits(service: Service, tmp_path: Path) -> None:
    """Addresses come from a header here."""
    words = {"access_log off;": "access_log off; set_real_ip_from 127.0.0.1; real_ip_header X-Client;"}
    with nginx_before(tmp_path, service, **words) as proxy, proxy.client() as client, ExitStack() as stack:

        def status(address: str) -> int:
            return client.get("/v1/info", headers={"X-Client": address}).status_code

        def is_refused_beside_64() -> bool:
            hold_64(proxy, proxy.trusted, stack, "X-Client: 2001:db8::{}:1")
            return status("2001:db8::ffff:0:0:7") == 429

        wait_until(is_refused_beside_64, seconds=60)
        assert [status(other) for other in ("2001:db8:0:1::1", "2001:db8:1::1", "10.0.0.1")] == [200] * 3


@pytest.mark.parametrize("buffering", ["off", "on"])
def test_nginx_keeps_no_byte_of_a_body_and_a_refusal_arrives(
    service: Service, tmp_path: Path, buffering: str
) -> None:
    seen, stop, body = list[str](), threading.Event(), bytes(63 * 2**20)
    words = {"proxy_request_buffering off;": f"proxy_request_buffering {buffering};"}
    with nginx_before(tmp_path, service, **words) as proxy:

        def look() -> None:
            while not stop.wait(0.02):
                seen.extend(files_with_a_body(proxy.master))

        looking = threading.Thread(target=look)
        looking.start()
        assert replace(proxy, key="no").send(body).status_code == 401
        assert proxy.send(body).status_code == 422  # malformed
        stop.set()
        looking.join()
    assert bool(seen) == (buffering == "on")  # where it keeps bodies, this finds them


def test_nginx_refuses_another_name_and_too_many_connections(service: Service, tmp_path: Path) -> None:
    with (
        nginx_before(tmp_path, service) as proxy,
        proxy.client() as client,
        proxy.client(address="127.0.0.2") as elsewhere,
        ExitStack() as stack,
    ):
        trusted = proxy.trusted
        trusted.check_hostname = False
        other = stack.enter_context(proxy.connect())
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            trusted.wrap_socket(other, server_hostname="other.example")

        def is_refused_beside_64() -> bool:
            hold_64(proxy, trusted, stack)
            return client.get("/v1/info").status_code == 429

        # On a busy machine the first ones end before the last begin.
        wait_until(is_refused_beside_64, seconds=60)
        assert client.get("/v1/info").headers["content-type"] == "application/problem+json"
        assert elsewhere.get("/v1/info").status_code == 200


def test_nginx_says_that_the_service_is_away(tmp_path: Path) -> None:
    with nginx_before(tmp_path, Service(f"http://127.0.0.1:{free_port()}")) as proxy:
        answer = proxy.ask(vector(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["type"] == "urn:ucds:problem:busy"


@pytest.mark.slow
def test_nginx_closes_connections_that_say_nothing(service: Service, tmp_path: Path) -> None:
    with nginx_before(tmp_path, service) as proxy, proxy.connect() as silent, proxy.connect() as plain:
        begun = time.monotonic()
        for one in (silent, plain):
            one.settimeout(80)  # nginx waits 60 s for a handshake
        slow = proxy.trusted.wrap_socket(plain, server_hostname="localhost")
        slow.sendall(b"GET /v1/info HTTP/1.1\r\nX-")
        assert slow.recv(100) == b""
        assert silent.recv(1) == b""
    assert time.monotonic() - begun < 75


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clients_do_not_notice_a_replica_that_is_killed_behind_nginx(tmp_path: Path) -> None:
    """Five times under load, on one PostgreSQL ledger: who asks again is answered, and charges are exact."""
    run, replicas = make_run(tmp_path / "run"), (free_port(), free_port())
    with postgresql() as place, closing(Ledger(place, create=True)) as book, ExitStack() as stack:

        def start(at: int) -> subprocess.Popen[str]:
            served = started(run, "--ledger", place, "--port", at)
            return stack.enter_context(served)[0]

        def wait_for_more() -> None:
            before = len(labels)
            wait_until(lambda: len(labels) >= before + 60, 240)

        _, victim = map(start, replicas)
        services = [Service(f"http://127.0.0.1:{one}") for one in replicas]
        proxy = stack.enter_context(nginx_before(tmp_path, *services))
        with asking(replace(proxy, key=book.add_key("anna", 10**9)), count=8) as labels:
            for _ in range(5):
                wait_for_more()
                victim.kill()
                victim.wait()
                wait_for_more()
                victim = start(replicas[1])
            wait_for_more()
        assert book.list_keys()[0].used == len(labels)
        assert verify(place).faults == ()


def test_caddy_passes_on_what_clients_need(service: Service, tmp_path: Path) -> None:
    caddy, port, certificate = program("caddy"), free_port(), make_certificate(tmp_path)
    site = replaced(
        (DEPLOY / "Caddyfile").read_text(),
        **{
            "{\n\tservers {": "{\n\tadmin off\n\tauto_https disable_redirects\n\tservers {",
            "{$LABELS_HOST:localhost} {": f"{{$LABELS_HOST:localhost}} {{\n\ttls {certificate} {certificate}",
        },
    )
    (tmp_path / "Caddyfile").write_text(site)
    proxy = Proxy.before(service, port, certificate)
    places = dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"), str(tmp_path))
    places |= {"LABELS_HOST": proxy.url, "LABELS_UPSTREAM": service.url.replace("unix:", "unix/")}
    command = [caddy, "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")]
    with subprocess.Popen(command, env=os.environ | places, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(proxy.answers, seconds=60)
            check_proxy(proxy)
        finally:
            process.terminate()


def test_the_unit_is_one_that_systemd_takes_and_calls_safe(tmp_path: Path) -> None:
    analyze, unit = program("systemd-analyze"), tmp_path / "ucds@8000.service"
    unit.write_text((DEPLOY / "ucds@.service").read_text().replace("/opt/ucds/bin/ucds", "/bin/true"))
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (verified.returncode, verified.stderr) == (0, "")
    looked_at = [analyze, "security", "--offline=yes", "--threshold=20", str(unit)]  # 2.0 of 10
    assert subprocess.run(looked_at, capture_output=True, timeout=60).returncode == 0


def test_the_options_of_the_service_are_those_it_has() -> None:
    import typer

    import ucds.cli  # noqa: F401  (it adds the commands)
    from ucds.cli.options import app

    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    for name, words in (("ucds@.service", "/ucds serve "), ("compose.yaml", "command: [serve,")):
        (line,) = (line for line in (DEPLOY / name).read_text().splitlines() if words in line)
        used = set(re.findall(r"--[a-z-]+", line))
        assert used
        assert used <= known


def test_the_dockerfile_and_the_compose_file_name_what_is_there() -> None:
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source
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
    assert not set(stack["services"]["proxy"]["networks"]) & set(stack["services"]["labels"]["networks"])
    assert "ports" not in stack["services"]["labels"]  # clients reach it through the proxy alone
    assert "ports" not in stack["services"]["ledger"]
