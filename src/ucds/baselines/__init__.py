"""Published methods to compare with, each with the loss and the protocol of its own paper."""
