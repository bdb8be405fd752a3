"""Networks: encoders by name, the weights of files, and the network that is trained."""
