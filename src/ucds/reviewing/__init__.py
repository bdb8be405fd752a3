"""The page on which a person answers questions about the clusters of a run."""
