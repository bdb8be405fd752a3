"""Runs the stages: devices, schedule, checkpoints, progress. Knows neither side of the wall."""
