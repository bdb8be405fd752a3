"""The provider's service: it answers with one integer a sample, to those who hold a key, within a budget."""
