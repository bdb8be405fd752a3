"""Runs the stages: devices, schedule, checkpoints, progress. Knows neither provider nor client."""
