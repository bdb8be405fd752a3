"""Other people's methods, made of the same pieces, each with its own paper's loss and protocol."""
