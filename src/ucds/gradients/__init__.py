"""Trains networks by gradients: the loops of PCD, their losses, stages, devices and processes."""
