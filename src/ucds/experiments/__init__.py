"""Benchmarks: the only code, besides the demo, that sees the provider's and the client's side at once.

Where to look:

- What a grid is, as its TOML file says it: :mod:`~ucds.experiments.grid`.
- What one cell of a grid does: :mod:`~ucds.experiments.cells`. Its method is one of
  :mod:`~ucds.experiments.methods`, made of the stages of :mod:`~ucds.experiments.pipeline`.
- Where a figure of a run comes from: :mod:`~ucds.experiments.scoring`; how it is kept and known again:
  :mod:`~ucds.experiments.records`.
- In which order cells are run: :mod:`~ucds.experiments.runner`; in which processes:
  :mod:`~ucds.experiments.jobs`.
- Where a page is made of the records: :mod:`ucds.reports.tables`.
"""
