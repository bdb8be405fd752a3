"""The whole story on embedded data, see :mod:`~ucds.demo.story`; it needs neither download nor GPU."""
