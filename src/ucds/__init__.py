"""Unsupervised clustering under domain shift, with source privacy."""
