"""Unlabelled samples of several domains: scanning, decoding, caching, sampling and views.

Only ``ground_truth``, and ``subsets`` which is built on it, read class folders; training sees samples by
position only.
"""
