"""Texts are clustered by their embeddings; any model that makes vectors of texts will do.

    python examples/text.py

A help desk sorts its messages with the labels of another help desk, which writes more formally. The
embeddings here are counts of words, weighed and reduced by scikit-learn, so that nothing is fetched; with a
sentence encoder, write ``vectors = encoder.encode(texts)`` in their place. Takes a few seconds on a CPU.
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from ucds import SourceClustering, TargetClustering, clustering_accuracy

TOPICS = (
    "invoice payment refund charged twice credit card amount billing price receipt",
    "login password account locked reset sign in username two factor code expired",
    "parcel delivery late courier tracking address package arrived damaged shipping",
    "screen cracked battery does not charge device overheats repair warranty noise",
)
MANNERS = (
    "dear sir or madam i am writing to you regarding kindly advise with best regards",
    "hi there please help thanks so annoying again why asap cheers",
)


def write_messages(n: int, manner: str, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Draw messages of 12 words, a third of them of the manner, and the topic of each."""
    topics = rng.integers(len(TOPICS), size=n)
    texts = [" ".join([*rng.choice(TOPICS[t].split(), 8), *rng.choice(manner.split(), 4)]) for t in topics]
    return texts, topics


def main() -> None:
    rng = np.random.default_rng(0)
    (formal, _), (casual, topics) = (write_messages(400, manner, rng) for manner in MANNERS)
    encoder = make_pipeline(TfidfVectorizer(), TruncatedSVD(32, random_state=0)).fit(formal + casual)

    provider = SourceClustering(n_clusters=len(TOPICS), random_state=0).fit(encoder.transform(formal))
    answers = provider.label(encoder.transform(casual))  # one integer a message: all that is received

    client = TargetClustering(n_clusters=len(TOPICS), random_state=0)
    client.fit(encoder.transform(casual), source_labels=answers)
    for cluster in range(len(TOPICS)):
        print(f"cluster {cluster}: {casual[int(np.flatnonzero(client.labels_ == cluster)[0])]}")
    accuracy = clustering_accuracy(client.labels_, topics)
    print(f"the client's clusters agree with the topics: {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
