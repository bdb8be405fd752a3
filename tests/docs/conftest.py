"""Makes `pages` importable by the tests beside it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
