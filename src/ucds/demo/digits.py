"""Four handwriting styles of real digits: a small multi-domain data set that needs no download.

The 1,797 handwritten digits that scikit-learn ships (8 x 8 grey pixels, by 43 writers; Alpaydin and
Kaynak, UCI 1998) are split at random into four domains of about 449, and each domain is drawn in a style of
its own. No digit occurs in two domains. The split ignores classes, so class proportions differ by chance.

    paper       black ink on white paper
    chalk       thick pale strokes on a dark board, blurred, with dust
    blueprint   outlines only, white on blue with grid lines
    neon        a bright tube leaning to the right on a dark gradient
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

SIDE = 36
"""Side of a drawn digit in pixels; a model sees a crop of 32."""

Grey = NDArray[np.float64]
Picture = NDArray[np.uint8]


def write_digits(root: Path) -> None:
    """Draw all digits below ``root`` as ``<style>/<digit>/<number>.png``."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    for style, numbers in zip(STYLES, np.array_split(order, len(STYLES)), strict=True):
        for number in numbers:
            rng = np.random.default_rng([1, int(number)])
            picture = STYLES[style](_enlarge(digits.images[number] / 16.0), rng)
            folder = root / style / str(digits.target[number])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(folder / f"{number:04d}.png")


def _enlarge(digit: Grey) -> Grey:
    """Return the stroke intensity in 0..1 on ``(SIDE, SIDE)``, with a margin around the digit."""
    zoomed = ndimage.zoom(np.pad(digit, 1), SIDE / 10, order=3, mode="grid-constant", grid_mode=True)
    return np.asarray(np.clip(zoomed, 0.0, 1.0))


def _coloured(stroke: Grey, ink: tuple[float, float, float], ground: Grey) -> Picture:
    """Lay ink over a ground ``(SIDE, SIDE, 3)`` and round to 8 bits."""
    mixed = ground + stroke[..., None] * (np.array(ink) - ground)
    return np.clip(255 * mixed, 0, 255).round().astype(np.uint8)


def _plain(red: float, green: float, blue: float) -> Grey:
    return np.broadcast_to(np.array([red, green, blue]), (SIDE, SIDE, 3)).copy()


def _paper(digit: Grey, rng: np.random.Generator) -> Picture:
    return _coloured(digit, (0.08, 0.08, 0.12), _plain(0.97, 0.96, 0.92))


def _chalk(digit: Grey, rng: np.random.Generator) -> Picture:
    thick = ndimage.grey_dilation(digit, size=(4, 4))
    dusty = ndimage.gaussian_filter(thick, 1.0) * rng.uniform(0.6, 1.0, digit.shape)
    board = _plain(0.10, 0.22, 0.17) + 0.05 * rng.standard_normal((SIDE, SIDE, 1))
    return _coloured(np.clip(dusty, 0, 1), (0.93, 0.93, 0.85), board)


def _blueprint(digit: Grey, rng: np.random.Generator) -> Picture:
    outline = ndimage.gaussian_gradient_magnitude(digit, 1.0)
    outline = np.clip(outline / max(outline.max(), 1e-9) * 1.4, 0, 1)
    sheet = _plain(0.10, 0.24, 0.55)
    sheet[::6], sheet[:, ::6] = sheet[::6] + 0.12, sheet[:, ::6] + 0.12
    return _coloured(outline, (0.95, 0.97, 1.0), sheet)


def _neon(digit: Grey, rng: np.random.Generator) -> Picture:
    middle, lean = (SIDE - 1) / 2, 0.45
    shear = np.array([[1.0, 0.0], [lean, 1.0]])
    leaning = ndimage.affine_transform(digit, shear, offset=(0.0, -lean * middle), order=1)
    glow = np.clip(leaning + 0.5 * ndimage.gaussian_filter(leaning, 2.5), 0, 1)
    night = _plain(0.05, 0.02, 0.10) + np.linspace(0, 0.35, SIDE)[:, None, None] * np.array([0.5, 0.1, 0.6])
    return _coloured(glow, (0.25, 1.0, 0.75), night)


STYLES: dict[str, Callable[[Grey, np.random.Generator], Picture]] = {
    "paper": _paper,
    "chalk": _chalk,
    "blueprint": _blueprint,
    "neon": _neon,
}
"""Drawing function of each domain."""
