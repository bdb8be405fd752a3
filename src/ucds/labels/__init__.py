"""Shared by provider and client: cluster labels (one integer per sample, and K), and how to ask for them."""
