"""A reporter that keeps what it is told."""

from __future__ import annotations

from collections.abc import Mapping

from ucds.training.progress import Quiet


class Recorder(Quiet):
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def begin(self, title: str, total: int, done: int = 0) -> None:
        self.calls.append(("begin", title, total, done))

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        self.calls.append(("advance", done, sorted(figures)))

    def end(self) -> None:
        self.calls.append(("end",))
