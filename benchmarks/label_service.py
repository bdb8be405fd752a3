"""A label service as a process of its own: its model, nginx before it, clients, and files that harm it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import ssl
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from ucds.choices import NO_WEIGHTS
from ucds.encoders.encoder import Encoder
from ucds.heads import Head
from ucds.serving.ledger import Ledger
from ucds.training.model_file import Making, ModelCard, StoredModel, save_model
from ucds.training.options import Compute, EncoderOptions

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
N_CLUSTERS, SIDE = 31, 300


def source_model(encoder: Encoder, n_clusters: int, head: Head | None = None, **card: Any) -> StoredModel:
    """A model whose head has random weights if none is given; its card says what is named."""
    if head is None:
        rng = np.random.default_rng(0)
        weight, prototypes = (
            (rng.normal(size=(256, size)) / 16).astype(np.float32)
            for size in (encoder.spec.width, n_clusters)
        )
        head = Head(weight, np.zeros(256, np.float32), prototypes, bool(card.get("unit_features")))
    named: dict[str, Any] = {"role": "source", "name": "bench", "unit_features": head.unit_features, **card}
    made = {"encoder": encoder.spec, "weights": encoder.weights, "domains": ("a",), "stages": ("source",)}
    named["bottleneck_width"] = head.bottleneck_width
    named["making"] = Making("consensus", {}, n_clusters, 0, "32-true", {})
    described = ModelCard(n_clusters=n_clusters, **named | made)
    return StoredModel(described, head, encoder, np.full((1, n_clusters), 1 / n_clusters, np.float32))


def make_run(folder: Path, encoder: str, keys: int = 1, *, recentres: bool = False) -> list[str]:
    """A run with a random model and a ledger, whose keys are returned."""
    found = EncoderOptions(encoder, NO_WEIGHTS).find(Compute("cpu"))
    folder.mkdir()
    save_model(folder, source_model(found, N_CLUSTERS, recentres=recentres, unit_features=recentres))
    with contextlib.closing(Ledger(folder, create=True)) as ledger:
        return [ledger.add_key(f"key{number}", 10**9) for number in range(keys)]


@contextlib.contextmanager
def service(run: Path, *options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `ucds serve`: the process, and its address."""
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--accelerator", "cpu", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait()


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost, and its key, in one file."""
    path = folder / "localhost.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    request += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(["openssl", *request], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def replaced(text: str, **words: str) -> str:
    """A text with some words replaced, all of which are there."""
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(folder: Path, port: int, *upstreams: str, **words: str) -> Iterator[tuple[Path, int]]:
    """Run nginx with the file as it is but for names and places: its certificate, and its process."""
    certificate = make_certificate(folder)
    given = {
        "user www-data;": "user root;" if os.geteuid() == 0 else "",
        "error_log syslog:server=unix:/dev/log warn;": f"error_log {folder}/nginx.log warn;",
        "access_log off;": "access_log off; "
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "labels.example.org": "localhost",
        "/etc/ssl/labels.pem": str(certificate),
        "/etc/ssl/private/labels.key": str(certificate),
        "server unix:/run/ucds/8000/labels.sock max_fails=0;": "".join(
            f"server {one} max_fails=0;" for one in upstreams
        ),
    }
    settings = folder / "nginx.conf"
    settings.write_text(replaced((DEPLOY / "nginx.conf").read_text(), **given | words))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [program, "-p", str(folder), "-c", str(settings)]
    command += ["-g", f"daemon off; pid {folder}/nginx.pid;"]
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=60)
    master = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield certificate, master.pid
    finally:
        master.terminate()
        master.wait(30)


def files_with_a_body(master: int) -> list[str]:
    """Files that nginx has open in a folder for bodies; it unlinks them when it makes them."""
    found = []
    with contextlib.suppress(OSError):
        for worker in Path(f"/proc/{master}/task/{master}/children").read_text().split():
            for opened in Path(f"/proc/{worker}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found.append(str(opened.readlink()))
    return [name for name in found if "/body/" in name or "/proxy/" in name]


def client_of(
    url: str, key: str, address: str = "127.0.0.1", trusted: ssl.SSLContext | bool = False
) -> httpx.Client:
    """A client with a key, which asks from an address of this machine, and believes some certificates.

    The service may listen on a Unix socket, ``unix:PATH``.
    """
    transport, headers = (
        httpx.HTTPTransport(verify=trusted, local_address=address),
        {"Authorization": f"Bearer {key}"},
    )
    if url.startswith("unix:"):
        transport, url = httpx.HTTPTransport(uds=url.removeprefix("unix:")), "http://labels"
    return httpx.Client(base_url=url, headers=headers, timeout=120, transport=transport)


def labels_request(client: httpx.Client, images: Sequence[bytes], path: str = "/v1/labels") -> httpx.Request:
    """A request about images, whose body is sent as a whole."""
    request = client.build_request("POST", path, files=[("images", ("i", image)) for image in images])
    request.read()
    return request


def make_images(count: int) -> list[bytes]:
    """JPEG files like photographs: smooth forms with some noise."""
    generator = np.random.default_rng(0)
    images = []
    for _ in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 12, 3), np.uint8))
        pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(int)
        pixels = (pixels + generator.integers(-12, 13, pixels.shape)).clip(0, 255)
        images.append(saved(Image.fromarray(pixels.astype(np.uint8)), "JPEG", quality=85))
    return images


def fresh(images: Sequence[bytes], serials: Iterator[int]) -> list[bytes]:
    """The same images as new ones: bytes after the end of a JPEG change its content key alone."""
    return [image + next(serials).to_bytes(8, "big") for image in images]


def slow_jpeg2000(side: int = 5780) -> bytes:
    """A JPEG 2000 of under a kilobyte, flat, with four channels."""
    return saved(Image.new("RGBA", (side, side)), "JPEG2000")


def many_scans(scans: int = 10_000, side: int = 4000) -> bytes:
    """A progressive JPEG whose last scan is repeated; every one passes over the whole image."""
    data = saved(Image.new("RGB", (side, side), "gray"), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * scans + b"\xff\xd9"


def fill_bytes(length: int = 16 * 2**20 - 8) -> bytes:
    """A JPEG of nothing but the bytes that may stand before a marker."""
    return b"\xff\xd8" + b"\xff" * length


def slow_bmp(side: int = 2890) -> bytes:
    """A BMP file whose runs are one pixel long; Pillow unpacks runs in Python."""
    runs, palette = b"\x01\x00" * side * side + b"\x00\x01", bytes(1024)
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(runs), 0, 0, 256, 0)
    start = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start) + head + palette + runs


def comments(length: int = 2**20) -> bytes:
    """A PPM file whose header is one long comment without an end."""
    return b"P6 1" + b"#" * length


def large_tile(side: int = 30_000) -> bytes:
    """A TIFF file of 16 x 16 pixels in one tile of many million."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(side)) for _ in range(side)) + packer.flush()
    values = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side}
    values |= {324: 8 + 2 + 12 * 10 + 4, 325: len(packed)}  # where the tile is, and how long
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4) + packed


def large_webp(side: int = 5780) -> bytes:
    """A flat WebP file of about a kilobyte and as many pixels as are permitted."""
    return saved(Image.new("RGBA", (side, side)), "WEBP", lossless=True)


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """The file of an image in a format."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
