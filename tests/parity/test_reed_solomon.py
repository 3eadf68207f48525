"""The code itself: any lost shards come back from as many parity shards, whichever they are."""

from __future__ import annotations

import numpy as np
import pytest

from resilient_pq.format.kernels import gf256_accumulate
from resilient_pq.format.kernels.reference.gf256 import PRODUCTS
from resilient_pq.parity.reed_solomon import MAX_DATA, MAX_PARITY, coefficients, inverse, rebuild_shards


def test_the_first_parity_shard_is_the_xor_of_all_data_shards() -> None:
    assert (coefficients(1, MAX_DATA) == 1).all()


def test_coefficients_are_those_of_format_1() -> None:
    """Files and sidecars that exist depend on them; these were computed bit by bit."""
    assert coefficients(4, 5).tolist() == [
        [1, 1, 1, 1, 1],
        [1, 232, 220, 240, 194],
        [1, 220, 130, 32, 10],
        [1, 240, 32, 107, 251],
    ]


def test_every_submatrix_of_two_has_an_inverse() -> None:
    """Of all pairs of rows and of columns: the determinant is not 0."""
    code = coefficients(MAX_PARITY, MAX_DATA)
    for row in range(MAX_PARITY):
        for other in range(row):
            down = PRODUCTS[code[row][:, None], code[other]]
            determinants = down ^ down.T
            assert np.count_nonzero(determinants) == MAX_DATA * (MAX_DATA - 1)


def test_larger_submatrices_have_inverses() -> None:
    draw = np.random.default_rng(5)
    code = coefficients(MAX_PARITY, MAX_DATA)
    for size in [3, 4, 5, 10, 32] * 8:
        rows, columns = draw.choice(MAX_PARITY, size, False), draw.choice(MAX_DATA, size, False)
        matrix = np.ascontiguousarray(code[rows][:, columns])
        product = np.zeros_like(matrix)
        gf256_accumulate(matrix, inverse(matrix), product, 0)
        assert np.array_equal(product, np.eye(size, dtype=np.uint8))


def test_a_matrix_without_inverse_is_refused() -> None:
    with pytest.raises(ValueError, match="no inverse"):
        inverse(np.ones((2, 2), np.uint8))


@pytest.mark.parametrize(("num_data", "num_parity"), [(1, 1), (1, 3), (5, 2), (200, 10), (MAX_DATA, MAX_PARITY)])
def test_lost_shards_come_back_from_any_parity_shards(num_data: int, num_parity: int) -> None:
    draw = np.random.default_rng([num_data, num_parity])
    data = draw.integers(0, 256, (num_data, 100), np.uint8)
    parity = np.zeros((num_parity, 100), np.uint8)
    gf256_accumulate(coefficients(num_parity, num_data), data, parity, 0)
    for num_lost in {1, min(num_data, num_parity)}:
        lost = draw.choice(num_data, num_lost, False).tolist()
        rows = sorted(draw.choice(num_parity, num_lost, False).tolist())
        left = data.copy()
        left[lost] = 0
        assert np.array_equal(rebuild_shards(left, parity[rows], lost, rows), data[lost])
