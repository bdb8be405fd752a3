"""Tables: read and written as CSV and parquet files, whose suffix tells which.

In tables that ucds writes, every text is quoted, so no spreadsheet takes a text for a formula or splits it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray

from ucds.data.content import first_repeated
from ucds.errors import InputError, brief
from ucds.files import write_atomically

READ_SUFFIXES = (".csv", ".parquet")

# One at the beginning of a cell makes it a formula; the last ones are as wide as Chinese letters, or small.
_SIGNS = r"=+@\-\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
_BEGINS = r'(?:^|[,;|\t\n\r\v\f\x1c-\x1f\x85\u2028\u2029])[\s"]*'  # of a cell, by any separator
_ALSO_BEGINS = r'\s"*'  # where blanks separate; a sign between blanks is no formula

Column = Sequence[Any] | NDArray[Any]
Columns = Mapping[str, Column]


def plain_column(name: str) -> str:
    """Return the name of a column in the form that is compared: lower case, no spaces around it."""
    return name.strip().lower()


def texts_of_names(names: Iterable[object], where: str = "") -> list[str]:
    """Return names of columns as texts, such as "0" for 0; refuse two that are equal."""
    texts = list(map(str, names))
    if (twice := first_repeated(texts)) is not None:
        raise InputError(f"two columns{where} have the same name {brief(twice)}: rename one column")
    return texts


def read_table(path: Path, words: Collection[str] = ()) -> dict[str, Column]:
    """Read the columns of a CSV or parquet file.

    A CSV file is in UTF-8, separated by commas, with names in the first line. If the first line holds only
    numbers, it counts as a row, unless these are 0, 1, 2 and so on, which pandas gives as names. A column of
    a CSV file becomes numbers if all its values are.

    Columns of a CSV file whose names are among the ``words``, see :func:`plain_column`, stay words.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    from ucds.data.table_files import read_csv, read_parquet  # pyarrow takes a while to load

    columns = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path, words)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} is a table without rows")
    return columns


def write_table(
    path: Path, names: Sequence[str], rows: Callable[[], Iterable[Sequence[object]]], *, marked: bool = False
) -> None:
    """Write a table in CSV that a spreadsheet shows as it is, or in parquet, as the suffix says.

    The function ``rows`` yields the texts and numbers of each row, and is called twice. A CSV file that is
    ``marked`` begins with a byte order mark even where all letters are of ASCII.
    """
    if path.suffix.lower() == ".parquet":
        columns = dict(zip(names, map(_plain_values, zip(*rows(), strict=True)), strict=True))
        import pyarrow.parquet  # it takes a while to load

        write_atomically(path, lambda file: pyarrow.parquet.write_table(pyarrow.table(columns), file))
        return
    plain = not marked and all(str(value).isascii() for row in rows() for value in row)

    def write(file: IO[bytes]) -> None:
        # Without this mark Excel reads letters beyond ASCII in the code page of its country.
        text = io.TextIOWrapper(file, "utf-8" if plain else "utf-8-sig", "backslashreplace", newline="")
        table = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        table.writerow(names)
        table.writerows([guard(v) if isinstance(v, str) else v for v in row] for row in rows())
        text.detach()

    write_atomically(path, write)


def _plain_values(column: Sequence[object]) -> list[object]:
    """Return the values of a column, as floating point if a CSV file shows decimals."""
    return [float(value) if isinstance(value, Decimal) else value for value in column]


def guard(text: str) -> str:
    """Return a text with an apostrophe before each character that might make a cell a formula."""
    return re.sub(rf"({_BEGINS})('*[{_SIGNS}])|({_ALSO_BEGINS})('*[{_SIGNS}](?!\s|$))", r"\1\3'\2\4", text)


def unguard(text: str) -> str:
    """Return the original text of a result of :func:`guard`."""
    return re.sub(rf"({_BEGINS})'('*[{_SIGNS}])|({_ALSO_BEGINS})'('*[{_SIGNS}](?!\s|$))", r"\1\3\2\4", text)
