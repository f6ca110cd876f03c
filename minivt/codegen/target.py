"""A Target is data: what a device offers, from which tiles, layouts and instructions are chosen.

Not for detecting a device (backends) nor for instruction text (codegen/render).
"""
from __future__ import annotations

from dataclasses import dataclass

from minivt import dtypes
from minivt.dtypes import DType


@dataclass(frozen=True)
class MatrixInstruction:
    """acc[m, n] += a[m, k] * b[k, n] in one instruction, or in one register tile of plain vector arithmetic.

    name: what the renderer calls it; layouts of the fragments are in codegen/layout.py under the same name.
    group: threads that issue it together. a_space, b_space: where operands may live.
    """
    name: str
    m: int
    n: int
    k: int
    a: DType
    b: DType
    acc: DType
    group: int = 1
    a_space: tuple[str, ...] = ("fragment",)
    b_space: tuple[str, ...] = ("fragment",)


@dataclass(frozen=True)
class Target:
    """One kind of device.

    kind: 'cpu' or 'gpu'. vector_bytes: widest register or load of one thread. registers: of that width.
    shared_bytes: memory of one block that is as fast as cache (GPU shared memory; half of a CPU core's L2).
    accumulator_bytes: the largest accumulator tile of one block. group: threads that run in lockstep (1 on CPU).
    units: blocks that run at the same time. features: names that renderer and compiler understand.
    lowering: the module whose code_of(program, target) gives a TileProgram's code as text.
    """
    name: str
    kind: str
    vector_bytes: int
    registers: int
    shared_bytes: int
    accumulator_bytes: int
    group: int
    units: int
    features: tuple[str, ...] = ()
    matrix: tuple[MatrixInstruction, ...] = ()
    lowering: str = "minivt.codegen.vectorize"


def cpu_target(vector_bytes: int, registers: int, l2_bytes: int, units: int, features: tuple[str, ...]) -> Target:
    """A CPU core of the given register file; its register tile leaves room for the operands.

    The tile is rows x 2 vectors: 8 rows on 32 registers, 4 on 16; enough independent sums to hide the latency of a
    fused multiply-add (4 cycles on 2 units) with few loads. The feature fast_bf16_dot says that products of bfloat16
    pairs are added faster than two such steps.
    """
    lanes = vector_bytes // 4
    rows = 8 if registers >= 32 else 4
    tile = MatrixInstruction("fma", rows, 2 * lanes, 1, dtypes.float32, dtypes.float32, dtypes.float32)
    pairs = MatrixInstruction("dpbf16", rows, 2 * lanes, 2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)
    has_pairs = "fast_bf16_dot" in features and vector_bytes == 64
    return Target("cpu", "cpu", vector_bytes, registers, l2_bytes // 2, l2_bytes // 4, 1, units, features,
                  (tile, pairs) if has_pairs else (tile,))


def _warp_products(name: str, m: int, n: int, k: int) -> tuple[MatrixInstruction, ...]:
    """An instruction of a warp on 16-bit operands in registers."""
    return tuple(MatrixInstruction(name, m, n, k, x, x, dtypes.float32, 32)
                 for x in (dtypes.bfloat16, dtypes.float16))


CUDA, ACCUMULATOR_BYTES = "minivt.codegen.render.cuda", 256 * 128 * 4
SM_80 = Target("sm_80", "gpu", 16, 65536, 163 * 1024, ACCUMULATOR_BYTES, 32, 108, (),
               _warp_products("mma", 16, 8, 16), CUDA)
SM_89 = Target("sm_89", "gpu", 16, 65536, 99 * 1024, ACCUMULATOR_BYTES, 32, 128, (),
               _warp_products("mma", 16, 8, 16), CUDA)
SM_90A = Target("sm_90a", "gpu", 16, 65536, 227 * 1024, ACCUMULATOR_BYTES, 32, 132,
                ("tma", "mbarrier", "setmaxnreg", "wgmma"),
                tuple(MatrixInstruction("wgmma", 64, n, 16, x, x, dtypes.float32, 128,
                                        ("shared", "fragment"), ("shared",))
                      for x in (dtypes.bfloat16, dtypes.float16) for n in (256, 128, 64, 32, 16, 8))
                + _warp_products("mma", 16, 8, 16), CUDA)
