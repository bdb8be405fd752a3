"""Unlabelled samples of several domains: scanning, decoding, caching, sampling and views.

Nothing here but `ground_truth`, and what is built on it (`layouts`, `subsets`), reads a class
folder; training sees samples by position only.
"""
