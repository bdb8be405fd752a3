"""The file of the key that signs receipts: made once, readable by its owner alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ucds.errors import DamagedFileError, InputError
from ucds.serving.signing import Signer


def test_a_key_is_made_once_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with ThreadPoolExecutor(8) as pool:
        publics = {signer.public for signer in pool.map(Signer.open, [path] * 8)}
    assert len(publics) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["key.pem"]


def test_what_holds_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    other = rsa.generate_private_key(65537, 1024)
    for content in (b"", b"no key", other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="not a file with an Ed25519 key"):
            Signer.open(path)
    with pytest.raises(InputError, match="cannot be read"):
        Signer.open(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        Signer.open(tmp_path / "no" / "such" / "key.pem")
