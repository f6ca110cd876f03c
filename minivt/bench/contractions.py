"""How near a matrix product and causal attention, written in plain Tensor code, come to the machine's limit.

    python -m minivt.bench.contractions --backend "cuda"        bf16: matmul 8192^3, attention 32 x 4096 x 128
    python -m minivt.bench.contractions --backend cpu           f32: matmul 1024^3, attention 8 x 1024 x 64

Each line: the work, kernels, the relative error of sampled rows against float64, the median time of a launch and
operations a second. Inputs are random. Not for whole models.
"""
from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from minivt import Tensor, arange, where
from minivt.dtypes import bfloat16_to_float
from minivt.runtime.realize import Plan, to_numpy
from minivt.runtime.seam import Call, backend_of

LAUNCHES, REPEATS = 10, 7  # a time is that of LAUNCHES back to back, divided; the median of REPEATS times counts
SAMPLED_ROWS = 16


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """(M, K) @ (K, N)."""
    return a @ b


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q: (kv_heads, group, T, D), k and v: (kv_heads, 1, T, D); every query sees the keys up to its own."""
    T, D = q.shape[-2:]
    scores = (q.cast("float32") @ k.cast("float32").transpose(-1, -2)) * D ** -0.5
    visible = arange(T, device=q.device) <= arange(T, device=q.device).reshape(T, 1)
    weights = where(visible, scores, float("-inf")).softmax(-1)
    return (weights.cast(q.dtype).cast("float32") @ v.cast("float32")).cast(q.dtype)


def measure(result: Tensor) -> tuple[np.ndarray, int, float]:
    """The result as float64, the kernels that it took and the median seconds of computing it once."""
    backend = backend_of(result.device)
    plan = Plan.make([result.node], backend, result.device, lambda buffer: False)
    memories, storage = plan.allocate(backend, {}), plan.schedule.storage
    calls = [Call(executable, [memories[storage.get(a, a)] for a in launch.arguments])
             for launch, executable in zip(plan.schedule.launches, plan.executables)]
    run = backend.prepare(calls * LAUNCHES).run
    run({})
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run({})
        times.append((time.perf_counter() - start) / LAUNCHES)
    out = backend.to_host(memories[plan.home(result.node)], result.shape, result.dtype)
    return wide(out), len(calls), statistics.median(times)


def wide(array: np.ndarray) -> np.ndarray:
    return (bfloat16_to_float(array) if array.dtype == np.uint16 else array).astype(np.float64)


def random(seed: int, device: str, dtype: str, *shape: int) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return Tensor(values, dtype, device).realize()


def host(x: Tensor) -> np.ndarray:
    return wide(to_numpy(x.node))


def report(name: str, got: np.ndarray, want: np.ndarray, kernels: int, seconds: float, flops: float) -> None:
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    print(f"{name:40} {kernels} kernel{'s' * (kernels > 1)}  error {error:.1e}  {seconds * 1e6:10.1f} us  "
          f"{flops / seconds / 1e12:8.2f} TFLOP/s", flush=True)


def bench_matmul(device: str, dtype: str, M: int, N: int, K: int) -> None:
    a, b = random(1, device, dtype, M, K), random(2, device, dtype, K, N)
    out, kernels, seconds = measure(matmul(a, b))
    rows = np.linspace(0, M - 1, SAMPLED_ROWS).astype(int)
    report(f"matmul {dtype} {M} x {N} x {K}", out[rows], host(a)[rows] @ host(b), kernels, seconds, 2 * M * N * K)


def bench_attention(device: str, dtype: str, heads: int, kv_heads: int, T: int, D: int) -> None:
    q = random(3, device, dtype, kv_heads, heads // kv_heads, T, D)
    k, v = (random(seed, device, dtype, kv_heads, 1, T, D) for seed in (4, 5))
    out, kernels, seconds = measure(attention(q, k, v))
    rows = np.linspace(0, T - 1, SAMPLED_ROWS).astype(int)
    scores = host(q)[-1, -1][rows] @ host(k)[-1, 0].T * D ** -0.5
    scores = np.where(np.arange(T) <= rows[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ host(v)[-1, 0]
    report(f"causal attention {dtype} {heads}/{kv_heads} x {T} x {D}", out[-1, -1][rows], want, kernels, seconds,
           2 * heads * T * T * D)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="cpu", help="a device such as cpu")
    device = parser.parse_args().backend
    if backend_of(device).target.kind == "gpu":
        bench_matmul(device, "bfloat16", 8192, 8192, 8192)
        bench_attention(device, "bfloat16", 32, 32, 4096, 128)
        bench_attention(device, "bfloat16", 32, 8, 4096, 128)
    else:
        for size in (512, 1024, 2048):
            bench_matmul(device, "float32", size, size, size)
        bench_attention(device, "float32", 8, 8, 1024, 64)


if __name__ == "__main__":
    main()
