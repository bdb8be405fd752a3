"""A program answers the questions of a review: any model that can compare pictures.

    python examples/answers_by_program.py RUN IMAGES COMMAND [ARGUMENT ...]

IMAGES is the folder that RUN was trained on. For each question COMMAND is called with its arguments, the
paths of pictures of the group in doubt and, after "--" each, those of every group that it may belong to. It
prints the number of the group to which the first one belongs, from 1, or "new" if that is none of them. After
anything else the question is skipped. The reviewed run is RUN-reviewed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ucds import Review

EACH, MOST_QUESTIONS = 4, 25


def ask(command: list[str], groups: list[list[str]]) -> str:
    paths = groups[0] + [path for group in groups[1:] for path in ["--", *group]]
    return subprocess.run([*command, *paths], capture_output=True, text=True, check=True).stdout.strip()


def main(run: str, images: str, *command: str) -> None:
    review = Review(run)
    for _ in range(MOST_QUESTIONS):
        question = review.question()
        if question is None or not review.worth_asking:
            break
        typical = [
            rows[(-review.seen.nearness(rows)).argsort()[:EACH]] for rows in map(review.rows, question.groups)
        ]
        groups = [[str(Path(images, review.start.ids[row])) for row in rows] for rows in typical]
        said = ask(list(command), groups)
        answers = [answer for _, answer in question.answers if answer not in ("mixed", "skip")]
        given = dict(zip([*map(str, range(1, len(groups))), "new"], answers, strict=True)).get(said, "skip")
        print(f"{question.text} {given}")
        review.answer(given)
    print(review.finish().sentence if review.answered else "nothing was answered")


if __name__ == "__main__":
    main(*sys.argv[1:])
