"""Work on millions of samples: cut into shards, done by a plain loop or by Ray, written as parquet files."""
