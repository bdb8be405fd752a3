"""Unlabelled samples of several domains: scanning, decoding, caching, sampling and views.

Only ``ground_truth`` reads class folders; training sees samples by position only.
"""
