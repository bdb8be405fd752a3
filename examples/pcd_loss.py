"""The loss of PCD in a training loop of one's own, with one's own network and data.

    python examples/pcd_loss.py

Clusters digits that two scanners have recorded, with a small network that learns from the loss alone. Takes
a few seconds on a CPU, and needs the extra `torch`.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from ucds import PCDLoss, clustering_accuracy

CLUSTERS, STEPS, OF_EACH = 10, 300, 64


def main() -> None:
    digits = load_digits()
    rng = np.random.default_rng(0)
    scanner = rng.integers(2, size=len(digits.data))
    contrast, brightness = rng.uniform(0.5, 1.5, size=(2, 64)), rng.normal(0, 3, size=(2, 64))
    pixels = (digits.data * contrast[scanner] + brightness[scanner]) / 16
    vectors = torch.from_numpy(pixels).float()
    domains = [torch.from_numpy(np.flatnonzero(scanner == domain)) for domain in range(2)]

    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))
    prototypes = nn.Parameter(torch.randn(32, CLUSTERS))
    optimiser = torch.optim.Adam([*encoder.parameters(), prototypes], lr=1e-2)
    loss = PCDLoss(counts=[OF_EACH, OF_EACH], n_clusters=CLUSTERS)
    for _ in range(STEPS):
        # A batch holds as many samples of each scanner as `counts` says, one scanner after the other.
        batch = torch.cat([rows[torch.randint(len(rows), (OF_EACH,))] for rows in domains])
        features = encoder(vectors[batch])
        logits = features @ prototypes
        loss.update_proportions(logits, momentum=0.99)
        optimiser.zero_grad()
        loss(features, prototypes, logits).backward()
        optimiser.step()

    with torch.no_grad():
        clusters = (encoder.eval()(vectors) @ prototypes).argmax(1).numpy()
    # The true digits are used only here, to score.
    print(f"the clusters agree with the digits: {100 * clustering_accuracy(clusters, digits.target):.1f} %")


if __name__ == "__main__":
    main()
