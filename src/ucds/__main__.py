"""``python -m ucds`` is the same as ``ucds``."""

from ucds.cli import main

main()
