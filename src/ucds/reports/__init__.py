"""Pages, tables and figures: what people look at. :mod:`~ucds.reports.tables` makes a benchmark's page."""
