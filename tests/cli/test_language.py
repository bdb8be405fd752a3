"""Messages name arguments as Python writes them; the command line writes them as its options."""

import pytest

from ucds.cli import main  # noqa: F401  (it defines all commands)
from ucds.cli.options import in_options


@pytest.mark.parametrize(
    ("told", "printed"),
    [
        ("choose another `out`", "choose another --out"),
        ("give `n_clusters`, or `labels`", "give --clusters, or --labels"),
        ('use `accelerator="cpu"`', "use --accelerator cpu"),
        ("go on with `resume=True`", "go on with --resume"),
        ("ask about fewer by `max_queries=12`", "ask about fewer by --max-queries 12"),
        ("audit with `effort=QUICK`", "audit with --quick"),
        ("see `ucds settings` and `sample_domain`", "see `ucds settings` and `sample_domain`"),
    ],
)
def test_arguments_become_options(told: str, printed: str) -> None:
    assert in_options(told) == printed
