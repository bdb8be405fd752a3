"""The settings of the baselines."""

from __future__ import annotations

from pydantic import Field

from ucds.config import ModelSettings


class DeepClusterSettings(ModelSettings):
    """Settings of DeepCluster; the defaults are the authors' for ImageNet."""

    epochs: int = Field(500, ge=1, description="times that the samples are clustered and then learned")
    batch_size: int = Field(256, ge=2, description="samples a step; at least one of each cluster")
    learning_rate: float = Field(0.05, gt=0, description="learning rate of SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of all layers but the re-initialised one")
    weight_decay: float = Field(1e-5, ge=0, description="weight decay of SGD")
    principal_components: int = Field(
        256, ge=1, description="whitened components of the features, for k-means"
    )
    rectified: bool = Field(True, description="ReLU between the features and the last layer, in training")
    iterations: int = Field(20, ge=1, description="iterations of k-means at most")
    crop: float = Field(224 / 256, gt=0, le=1, description="side of crops, as a share of the image's")


class PairSettings(ModelSettings):
    """Settings that IIC and ACIDS share."""

    sub_heads: int = Field(5, ge=1, description="sub-heads of each head")
    over_clustering: float = Field(7.0, ge=1, description="outputs of the other head, in multiples of K")
    learning_rate: float = Field(1e-4, gt=0, description="learning rate of Adam, for all layers")
    rates: tuple[float, ...] = Field(
        (), strict=False, description="learning rates to choose from by the loss; none keeps learning_rate"
    )
    crop: float = Field(2 / 3, gt=0, le=1, description="side of crops, as a share of the image's")
    feature_dropout: float = Field(0.2, ge=0, lt=1, description="dropout that makes pairs of frozen features")
    bottleneck: bool = Field(False, description="PCD's bottleneck below the heads; always with tune = head")


class IICSettings(PairSettings):
    """Settings of IIC; the defaults are the authors' for STL10."""

    epochs: int = Field(2000, ge=1, description="passes over the samples with each of the two heads")
    batch_size: int = Field(140, ge=2, description="samples a step")
    repeats: int = Field(5, ge=1, description="pairs of each sample in a batch, r")


class ACIDSSettings(PairSettings):
    """Settings of ACIDS; the defaults are the authors' for Office-31, else those they released for PACS."""

    source_epochs: int = Field(200, ge=1, description="passes over the source with each of the two heads")
    target_epochs: int = Field(100, ge=1, description="passes over the target with each of the two heads")
    batch_size: int = Field(162, ge=2, description="samples a step, over all domains")
    joint_weight: float = Field(0.2, gt=0, le=1, description="weight of a batch in the running joint, alpha")
    domain_weight: float = Field(10.0, ge=0, description="weight of the information about the domain, lambda")
    domain_warm_up: int = Field(8, ge=0, description="epochs in which that weight rises from zero")
    confidence: float = Field(
        0.95, gt=0, description="confidence from which a target prediction is made hard"
    )
