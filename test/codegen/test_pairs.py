"""Products of bfloat16 pairs: exact products in float32 sums, for any size, and only where the target has them."""
import numpy as np
import pytest

from cpu_kernels import LEVELS, TARGETS, check
from minivt.codegen.vectorize import lower_cpu
from minivt.dtypes import float_to_bfloat16
from tile_examples import attention, matmul

needs_pairs = pytest.mark.skipif("bf16" not in LEVELS, reason="the processor has no bfloat16 dot product")
INSTRUCTION = "avx512bf16.dpbf16ps"


def random_bits(seed, *shape):
    return float_to_bfloat16(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).reshape(-1)


@needs_pairs
@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("M, N, K", [(32, 32, 16), (37, 50, 65), (16, 64, 7), (70, 33, 130)])
def test_products_of_pairs(M, N, K, layout):
    program = matmul(M, N, K, tiles=(32, 32, 64), b_layout=layout)
    assert INSTRUCTION in lower_cpu(program, TARGETS["bf16"]).ir_text
    arrays = [random_bits(1, M, K), random_bits(2, K, N), np.zeros(M * N, np.uint16)]
    check(program, arrays, level="bf16", rtol=2.0 ** -7, atol=1e-4 * K ** 0.5)  # one rounding to bfloat16


@needs_pairs
def test_infinities_and_nan_pass_through():
    a, b = random_bits(1, 16, 16), random_bits(2, 16, 32)
    a[5], a[40], b[7] = 0x7F80, 0x7FC0, 0xFF80  # inf, NaN, -inf
    check(matmul(16, 32, 16, tiles=(16, 32, 16)), [a, b, np.zeros(16 * 32, np.uint16)], level="bf16", rtol=2.0 ** -7,
          atol=1e-3)


@needs_pairs
def test_attention_multiplies_pairs():
    program = attention(2, 1, 70, D=32, tiles=(32, 32))
    text = lower_cpu(program, TARGETS["bf16"]).ir_text
    assert text.count(f"call <16 x float> @llvm.x86.{INSTRUCTION}") >= 2
    arrays = [random_bits(1, 2, 70, 32), random_bits(2, 1, 70, 32), random_bits(3, 1, 70, 32),
              np.zeros(2 * 70 * 32, np.uint16)]
    check(program, arrays, level="bf16", rtol=2.0 ** -6, atol=2e-2)


def test_other_targets_widen():
    for level in ("avx512", "avx2", "sse2", "neon"):
        assert "bf16" not in lower_cpu(matmul(32, 32, 16, tiles=(32, 32, 16)), TARGETS[level]).ir_text
