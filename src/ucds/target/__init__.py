"""The client's side: learns from labels alone. Never imports ``source`` or ``serving``."""
