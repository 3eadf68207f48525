"""A systematic Cauchy Reed-Solomon code over GF(2^8): coefficients of parity shards, and lost data shards rebuilt.

The coefficient of parity shard p and data shard j is 1 / (p ^ (32 + j)), each column and then each row divided by its
first entry, so that the first parity shard is the XOR of all data shards. Every square submatrix of a Cauchy matrix has
an inverse, so any lost shards can be rebuilt from as many parity shards. Blömer et al., "An XOR-Based Erasure-Resilient
Coding Scheme", 1995, has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.kernels import gf256_accumulate
from resilient_pq.format.kernels.reference.gf256 import PRODUCTS

MAX_PARITY: Final = 32
MAX_DATA: Final = 256 - MAX_PARITY

#: The inverse of each element but 0.
_INVERSES: Final = np.argmax(PRODUCTS == 1, axis=1).astype(np.uint8)


def _normalised() -> NDArray[np.uint8]:
    parity, data = np.arange(MAX_PARITY), np.arange(MAX_PARITY, MAX_PARITY + MAX_DATA)
    cauchy = _INVERSES[parity[:, None] ^ data]
    cauchy = PRODUCTS[cauchy, _INVERSES[cauchy[0]]]
    normalised: NDArray[np.uint8] = PRODUCTS[cauchy, _INVERSES[cauchy[:, :1]]]
    return normalised


_COEFFICIENTS: Final = _normalised()


def coefficients(num_parity: int, num_data: int) -> NDArray[np.uint8]:
    """A row for each parity shard with a factor for each data shard: what `gf256_accumulate` takes."""
    if not (0 <= num_parity <= MAX_PARITY and 0 <= num_data <= MAX_DATA):
        raise ValueError(f"no code has {num_parity} parity and {num_data} data shards")
    return np.ascontiguousarray(_COEFFICIENTS[:num_parity, :num_data])


def inverse(matrix: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of a square matrix."""
    size = len(matrix)
    rows = np.concatenate([matrix, np.eye(size, dtype=np.uint8)], axis=1)
    for i in range(size):
        pivots = np.flatnonzero(rows[i:, i])
        if not pivots.size:
            raise ValueError("the matrix has no inverse")
        rows[[i, i + pivots[0]]] = rows[[i + pivots[0], i]]
        rows[i] = PRODUCTS[_INVERSES[rows[i, i]], rows[i]]
        for other in range(size):
            if other != i and rows[other, i]:
                rows[other] ^= PRODUCTS[rows[other, i], rows[i]]
    return np.ascontiguousarray(rows[:, size:])


def rebuild_shards(
    data: NDArray[np.uint8], parity: NDArray[np.uint8], lost: Sequence[int], parity_rows: Sequence[int]
) -> NDArray[np.uint8]:
    """The bytes of lost data shards."""
    factors = coefficients(max(parity_rows) + 1, len(data))[list(parity_rows)]
    gf256_accumulate(factors, data, parity, 0)
    rebuilt = np.zeros_like(parity)
    gf256_accumulate(inverse(factors[:, list(lost)]), parity, rebuilt, 0)
    return rebuilt
