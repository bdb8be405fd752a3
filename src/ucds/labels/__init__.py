"""What provider and client share: cluster labels, one integer a sample with K, and how they are asked for."""
