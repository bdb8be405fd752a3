"""The provider's service: it answers with one integer a sample, to those who hold a key, within a budget."""

from ucds.extras import require_extra

require_extra("serve", "the label service")
