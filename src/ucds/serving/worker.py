"""One process of a service of several; :class:`ucds.serving.workers.Workers` starts it."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading

from ucds.serving.serve import answer
from ucds.serving.server import Sockets
from ucds.serving.workers import READY, describe


def main() -> None:
    """Answer on the sockets that were handed over, until SIGTERM, or until the first process is gone."""
    said, stop = int(sys.argv[1]), threading.Event()
    try:
        options, numbers, rates = pickle.load(sys.stdin.buffer)
        threading.Thread(target=_watch, args=(stop,), daemon=True).start()
        with Sockets(*(socket.socket(fileno=number) for number in numbers)) as bound:
            answer(options, bound, ready=lambda url: _say(said, READY), stop=stop, rates=rates)
    except Exception as error:
        _say(said, describe(error))
        raise SystemExit(1) from None


def _watch(stop: threading.Event) -> None:
    # Not through `sys.stdin`, whose lock this thread would hold when the interpreter ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stop.set()


def _say(said: int, words: bytes) -> None:
    try:
        os.write(said, words)
    except OSError:  # said before, or nobody listens any more
        return
    if words != READY:
        os.close(said)


if __name__ == "__main__":
    main()
