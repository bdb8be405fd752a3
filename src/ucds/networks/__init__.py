"""Networks, with the extra `torch`: by name, with the weights of files, and the one that is trained."""

from ucds.extras import require_extra

require_extra("torch", "ucds.networks")
