"""The provider's service: it answers with one integer per sample, for clients with a key, within a budget."""

from ucds.extras import require_extra

require_extra("serve", "the label service")
