"""Opens inputs, runs trainings and writes models, for provider and client alike; imports neither."""
