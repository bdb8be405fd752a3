"""Security events: one line of JSON each on the standard error, which journald or syslog keep."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

logger = logging.getLogger("ucds.security")


def record(event: str, **fields: object) -> None:
    """Write one security event.

    Args:
        event: kind of the event, such as ``failed-authentication``.
        **fields: values of JSON that say more; never a secret or a client's content.
    """
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | fields
    # Without any setting of the program, Python writes a warning to the standard error as it is.
    logger.warning(json.dumps(line))
