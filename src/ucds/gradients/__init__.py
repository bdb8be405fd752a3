"""Trains networks by gradients, with the extra `torch`: the loops of PCD, its loss, stages and processes."""

from ucds.extras import require_extra

require_extra("torch", "ucds.gradients")
