"""Images inside tar files, as WebDataset writes them: found by their headers, read in place.

Nothing is unpacked, so no name in an archive ever becomes a path on the disk.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import NamedTuple

from ucds.errors import InputError, one_line

TAR_SUFFIX = ".tar"


class Span(NamedTuple):
    """Place of an image inside a tar file.

    Attributes:
        archive: path of the tar file, relative to the same folder as the image's own path.
        offset: position of its first byte.
        length: number of its bytes.
    """

    archive: str
    offset: int
    length: int


def list_tar(root: Path, archive: str) -> dict[str, Span]:
    """Find the regular files of a tar file by their headers.

    Folders, links, devices and files with holes are left out: they hold no bytes of an image.

    Args:
        root: folder that the archive's path is relative to.
        archive: path of the tar file.

    Returns:
        Place of each file by its path: the archive's path, a slash, and the name inside.

    Raises:
        InputError: the file is compressed, damaged, cut off or no tar file, or a name occurs twice in it.
    """
    path = root / archive
    found: dict[str, Span] = {}
    if not path.is_file():  # opening a named pipe would wait for a writer for ever
        raise InputError(f"There is no file {path}.")
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # millions of them would fill the memory
                if not member.isreg() or member.issparse():
                    continue
                name = f"{archive}/{member.name}"
                if name in found:
                    raise tarfile.ReadError(f"two files of the name {member.name!r}")
                if member.size < 0 or member.offset_data + member.size > size:
                    raise tarfile.ReadError("a length beyond the end of the file")
                found[name] = Span(archive, member.offset_data, member.size)
            # The library takes a damaged header for the end, which is marked by zeros or by nothing.
            if any(os.pread(file.fileno(), tarfile.BLOCKSIZE, tar.offset)):
                raise tarfile.ReadError("a damaged header")
    except (tarfile.TarError, ValueError, OverflowError, OSError) as error:
        reason = f"{one_line(error, 120)}; a compressed one has to be unpacked to a plain .tar"
        raise InputError(f"{path} cannot be read as a tar file: {reason}") from None
    return found
