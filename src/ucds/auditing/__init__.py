"""Measures what a provider's labels give away: attacks that see nothing but labels, and a report of them."""
