"""The demonstration: both sides of the method on handwritten digits that need no download."""
