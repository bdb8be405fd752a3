"""The target owner's side: learns from labels alone. Never imports ``source`` or ``serving``."""
