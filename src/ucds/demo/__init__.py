"""The demo on embedded data, without download or GPU; see :mod:`~ucds.demo.story`."""
