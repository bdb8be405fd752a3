"""The mathematics of the methods: arrays or tensors in, arrays or tensors out, and nothing else."""
