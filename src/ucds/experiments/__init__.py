"""The composition root: the only code that sees both sides of the wall, for benchmarks and the demo."""
