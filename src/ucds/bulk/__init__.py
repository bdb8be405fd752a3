"""Features of millions of images: cut into shards, which a plain loop or Ray computes."""
