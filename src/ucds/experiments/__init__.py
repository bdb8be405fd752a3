"""Benchmarks: besides the demo, the only code that uses the provider's and the client's side together.

A grid, read from a TOML file (:mod:`~ucds.experiments.grid`), consists of cells
(:mod:`~ucds.experiments.cells`). The method of a cell (:mod:`~ucds.experiments.methods`) is made of stages
(:mod:`~ucds.experiments.pipeline`); its figures (:mod:`~ucds.experiments.scoring`) are kept as records
(:mod:`~ucds.experiments.records`), of which :mod:`ucds.reports.tables` makes a page.
"""
