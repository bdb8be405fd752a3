"""Files of networks that name sizes which they do not hold: refused in one line, in little memory."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from memory_kit import check, measure
from safetensors.torch import save

from ucds.encoders.spec import EncoderSpec
from ucds.files import write_sealed
from ucds.gradients.checkpoint import read_checkpoint
from ucds.networks.stored import stored_network
from ucds.networks.weight_files import read_state_dict

pytestmark = pytest.mark.torch

LARGE = 80 * 2**20


def test_a_network_is_not_built_for_weights_that_are_not_there() -> None:
    giant = EncoderSpec("vit_large_patch16_224", 1024, 224)
    content = save({"w": torch.zeros(1)})
    path = Path("model.safetensors")
    check(lambda: stored_network(giant, "none", content, path, None), "does not fit its own description")


def _repack(content: bytes) -> bytes:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
    return packed.getvalue()


def test_packed_tensors_are_measured_before_they_are_unpacked(tmp_path: Path) -> None:
    whole = io.BytesIO()
    torch.save({"a": torch.zeros(LARGE // 4)}, whole)
    (tmp_path / "w.pth").write_bytes(_repack(whole.getvalue()))
    del whole
    write_sealed(tmp_path / "checkpoint.pt", "ucds-checkpoint/1", (tmp_path / "w.pth").read_bytes())
    for read in (lambda: read_state_dict(tmp_path / "w.pth"), lambda: read_checkpoint(tmp_path)):
        needed, refusal = measure(read)
        assert "it names more tensors than it holds" in refusal
        assert needed < 50
