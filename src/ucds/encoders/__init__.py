"""Encoders: functions from inputs to features."""
