"""Trains networks by gradients, with the extra `torch`: the loops of PCD, their loss, stages and processes."""

from ucds.extras import require_extra

require_extra("torch", "ucds.gradients")
