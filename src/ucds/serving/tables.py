"""The ledger's tables."""

from __future__ import annotations

import sqlalchemy as sa

FORMAT = "ucds-ledger/2"
GENESIS = "0" * 64  # hash before the first entry of the log

metadata = sa.MetaData()

# One budget, and what is charged to it. A name may come again once its key is revoked.
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(64), nullable=False, index=True),
    sa.Column("budget", sa.BigInteger, nullable=False),
    sa.Column("rate", sa.Float),
    sa.Column("created", sa.String(32), nullable=False),
    sa.Column("revoked", sa.String(32)),
    sa.Column("expires", sa.String(32)),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("last_used", sa.String(32)),
)

# What a client shows. A key has two for some time after it was rotated.
secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("key_id", sa.Integer, sa.ForeignKey("keys.id"), nullable=False, index=True),
    sa.Column("tail", sa.String(4)),  # last characters; unknown for secrets of format 1
    sa.Column("created", sa.String(32), nullable=False),
    sa.Column("expires", sa.String(32)),
)

answers = sa.Table(
    "answers",
    metadata,
    sa.Column("key_id", sa.Integer, sa.ForeignKey("keys.id"), primary_key=True),
    sa.Column("model", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary(16), primary_key=True),
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("entry", sa.BigInteger, nullable=False, index=True),
)

# From where a model sees the samples of a key; the model's own mean where there is no row.
calibrations = sa.Table(
    "calibrations",
    metadata,
    sa.Column("id", sa.String(96), primary_key=True),  # number of the key and digest of the model
    sa.Column("key_id", sa.Integer, sa.ForeignKey("keys.id"), nullable=False, index=True),
    sa.Column("model", sa.String(64), nullable=False),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.String(32), nullable=False),  # of the contents of the samples
    sa.Column("mean", sa.Text, nullable=False),  # fp32 numbers, lowest byte first, in base64
    sa.Column("created", sa.String(32), nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.String(32), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# One row. Each writer locks it first, so the writers of all processes and replicas follow one another.
head = sa.Table(
    "head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("format", sa.String(32), nullable=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)

# In PostgreSQL alone: how fast each key asks, over all replicas. Of seconds' worth, so not in the log.
rates = sa.Table(
    "rates",
    sa.MetaData(),
    sa.Column("key_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tokens", sa.Float, nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    prefixes=["UNLOGGED"],
)
