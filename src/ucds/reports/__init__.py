"""Pages, tables and figures for readers. :mod:`~ucds.reports.tables` makes a benchmark's page."""

# P. Tol's "muted" scheme, made to be told apart under all common colour-vision deficiencies, and a grey.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#AA4499", "#44AA99", "#882255", "#999933", "#666666"),
)
# P. Tol's "light" scheme, for dark backgrounds, on which several of the above can hardly be seen.
DARK_COLOURS = (
    *("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF"),
    *("#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD"),
)
