"""Measures what a provider's labels give away, by attacks that see only labels, and reports the results."""
