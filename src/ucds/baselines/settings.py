"""The settings of the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ucds.config import ModelSettings, Settings


class KMeansSettings(Settings):
    """Settings of k-means on frozen features."""

    restarts: int = Field(5, ge=1, description="starts, of which the one with the best objective is kept")


class DeepClusterSettings(ModelSettings):
    """Settings of DeepCluster; the defaults are the authors' for ImageNet."""

    FORMERLY: ClassVar[Mapping[str, Any]] = {"rectified": False}

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

    FORMERLY: ClassVar[Mapping[str, Any]] = {"rates": []}

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


class HeadSettings(Settings):
    """Settings that TURTLE, TEMI and SCP share, which train a head on frozen features of the target."""

    steps: int = Field(2000, ge=1, description="steps of training")
    batch_size: int = Field(512, ge=2, description="samples a step")
    learning_rate: float = Field(1e-3, gt=0, description="learning rate of Adam")


class TURTLESettings(HeadSettings):
    """Settings of TURTLE; the defaults are the authors'."""

    steps: int = Field(6000, ge=1, description="steps of the labelling, T")
    batch_size: int = Field(10_000, ge=2, description="samples a step")
    entropy_weight: float = Field(10.0, ge=0, description="weight of the entropy of the labelling, gamma")
    inner_steps: int = Field(10, ge=1, description="steps of the classifier for each step, M")
    inner_learning_rate: float = Field(1e-3, gt=0, description="learning rate of the classifier")


class TEMISettings(HeadSettings):
    """Settings of TEMI; the defaults are the authors', with 100 epochs of CIFAR10 counted in steps."""

    steps: int = Field(4900, ge=1, description="steps of training")
    batch_size: int = Field(1024, ge=2, description="samples a step")
    learning_rate: float = Field(1e-4, gt=0, description="learning rate of AdamW, for batches of 256")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of AdamW")
    warm_up: float = Field(0.2, ge=0, le=1, description="share of the steps in which the rate rises")
    heads: int = Field(16, ge=1, description="heads, of which the one with the lowest loss is taken")
    hidden_width: int = Field(512, ge=1, description="width of the hidden layer of a head")
    output_width: int = Field(256, ge=1, description="width of the features below the last layer of a head")
    neighbours: int = Field(50, ge=1, description="neighbours that a pair is drawn from, at most")
    exponent: float = Field(0.6, gt=0, le=1, description="exponent of the agreement of a pair, beta")
    temperature: float = Field(0.1, gt=0, description="temperature of teacher and student")
    teacher_momentum: float = Field(0.996, ge=0, lt=1, description="weight of the teacher's past weights")
    marginal_momentum: float = Field(0.9, ge=0, lt=1, description="weight of past cluster sizes")


class SCPSettings(HeadSettings):
    """Settings of SCP; the defaults are those of TAC, which it simplifies, with 20 epochs of CIFAR10."""

    steps: int = Field(1950, ge=1, description="steps of training")
    hidden_width: int = Field(512, ge=1, description="width of the hidden layer")
    neighbours: int = Field(50, ge=1, description="neighbours that a pair is drawn from, at most")
    contrast_temperature: float = Field(0.5, gt=0, description="temperature of the consistency term")
    entropy_weight: float = Field(5.0, ge=0, description="weight of the entropy of the cluster sizes, alpha")
