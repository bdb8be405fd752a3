"""Verify a client's receipts and a provider's checkpoints, without a line of this package.

    python verify_receipts.py PUBLIC_KEY FILE ...

PUBLIC_KEY is the provider's, in hexadecimal digits. A FILE holds receipts that `ucds query` kept, each line a
check, a blank and JSON, or checkpoints that `ucds serve` wrote, each line JSON.
"""

import hashlib
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PRIME = 2**255 - 19
y = int.from_bytes(bytes.fromhex(sys.argv[1]), "little") % 2**255
if y * (y * y - 1) * (-121665 * y**4 + 121666 * (2 * y * y - 1)) % PRIME == 0:
    sys.exit(f"{sys.argv[1]} is a key of small order: anybody can sign for it")
provider = Ed25519PublicKey.from_public_bytes(bytes.fromhex(sys.argv[1]))
checkpoints: dict[
    int, tuple[str, str]
] = {}  # number of an entry of the log: its hash, and where that was said
receipts = 0
for file in sys.argv[2:]:
    for number, line in enumerate(Path(file).read_text().splitlines(), 1):
        kept = json.loads(line[line.index("{") :])
        if "url" in kept:  # the first line of a file of receipts, which names the service
            continue
        said = kept.get("receipt", kept)  # a receipt stands beside its labels, a checkpoint alone
        signature = bytes.fromhex(said.pop("signature"))
        # Signed are all other fields, sorted by name. A wrong signature raises InvalidSignature.
        provider.verify(signature, json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
        if "labels" in kept:
            receipts += 1
            if any(len(content) != 32 for content in kept["labels"]):
                sys.exit(f"{file}, line {number}: a key of a content does not have 32 digits")
            answers = sorted((bytes.fromhex(content), label) for content, label in kept["labels"].items())
            packed = b"".join(content + label.to_bytes(8, "big") for content, label in answers)
            if hashlib.sha256(packed).hexdigest() != said["answers_digest"]:
                sys.exit(f"{file}, line {number}: other labels than those that were signed")
        else:
            known, where = checkpoints.setdefault(said["number"], (said["hash"], f"{file}, line {number}"))
            if known != said["hash"]:
                sys.exit(f"{file}, line {number}: another hash than in {where}: there are two different logs")
print(f"{receipts} receipts and {len(checkpoints)} checkpoints, all signed by the provider")
