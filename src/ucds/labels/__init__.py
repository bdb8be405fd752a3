"""What provider and client share: cluster labels, one integer per sample with K, and how to ask for them."""
