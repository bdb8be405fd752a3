"""Programs that use finished models, estimators and encoders of their own."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import ucds

x: NDArray[np.float64] = np.eye(4)
model = ucds.load("run", role="target", compute=ucds.Compute(cache="folder"))
assert_type(model.predict(x), NDArray[np.int64])
assert_type(model.predict_proba("images"), NDArray[np.float32])
assert_type(model.transform(x.tolist()), NDArray[np.float32])
print(model.method, model.settings.hash, model.tune, model.seed, model.encoder.spec.name)
print(model.versions["numpy"])

target = ucds.TargetClustering(3, method="consensus", settings={"starts": 2}, random_state=0)
assert_type(target.fit(x, source_labels=[0, 1, 2, -1]), ucds.TargetClustering)
assert_type(target.predict(x), NDArray[np.int64])
loaded = ucds.TargetClustering.load("run", accelerator="cpu")
assert_type(loaded, ucds.TargetClustering)
loaded.save("again")

source = ucds.SourceClustering("auto", settings=ucds.ConsensusSettings(whitening=0.25), cache="folder")
assert_type(source.fit(x, sample_domain=["a", "a", "b", "b"]).label(x), ucds.ClusterLabels)
print(ucds.clustering_accuracy(target.predict(x), np.arange(4)))


def bands(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """A function of the user's own from signals to features."""
    return np.abs(np.fft.rfft(inputs, axis=1)).astype(np.float32)


encoder = ucds.FunctionEncoder(bands, example=np.zeros((1, 64), np.float32))
ucds.train_target(x, "signals", n_clusters=2, encoder=encoder)


class Halves(ucds.Encoder):
    """An encoder of the user's own as a class."""

    def compute(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return inputs[:, ::2]


print(Halves.computed_by)
