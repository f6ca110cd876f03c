"""Random tensors by counting: bit i of the stream is a function of the seed and of i, the same on every device.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
3", 2011). Its position in the stream is a tensor that every draw advances, so a captured program draws new numbers at
each replay. Not for secrets.
"""
from __future__ import annotations

import math

from minivt import dtypes
from minivt.broadcasting import sizes
from minivt.creation import arange
from minivt.dtypes import as_dtype
from minivt.errors import BoundsError, CaptureError, DTypeError
from minivt.runtime import realize as runtime
from minivt.tensor import Tensor
from minivt.variable import prod, wrap

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA  # makes the key schedule of three words never all zero
ROUNDS = 20

_STATE: dict[str, Tensor] = {}  # by device: (seed, position) in uint64


def manual_seed(seed: int) -> None:
    """Start the stream of `seed` (0 <= seed < 2^64) on every device; without a call it is that of 0."""
    if not 0 <= seed < 1 << 64:
        raise BoundsError(f"manual_seed: seed is {seed}; it must be from 0 to 2^64 - 1")
    _state_of(None)
    for state in _STATE.values():
        state[0], state[1] = Tensor(seed, dtypes.uint64, state.device), 0


def _state_of(device: str | None) -> Tensor:
    """The position on a device, made at its first use; a capture would take one made inside for a constant."""
    device = device or runtime.default_device()
    if device not in _STATE:
        if Tensor._trace is not None:
            raise CaptureError(f"random: the first random tensor on {device} is drawn inside a captured function; call "
                               "manual_seed or draw one before")
        _STATE[device] = Tensor([0, 0], dtypes.uint64, device)
    return _STATE[device]


def threefry(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two words of 32 random bits from two words of key and two of counter, all uint32 and of one shape."""
    schedule = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + schedule[0], counter[1] + schedule[1]
    for round in range(ROUNDS):
        rotation = ROTATIONS[round // 4 % 2][round % 4]
        x = x + y
        y = (y << rotation | y >> 32 - rotation) ^ x
        if round % 4 == 3:
            step = round // 4 + 1
            x, y = x + schedule[step % 3], y + schedule[(step + 1) % 3] + step
    return x, y


def random_bits(shape, device: str | None = None) -> tuple[Tensor, Tensor]:
    """Two independent tensors of 32 random bits (uint32) an element; advances the stream by one an element."""
    shape = sizes("random_bits", (shape,))
    state = _state_of(device)
    count = wrap(prod(shape))
    seed, place = state[0], state[1] + arange(count, dtype=dtypes.uint64, device=state.device)
    state[1] = state[1] + count
    words = threefry(_halves(seed), _halves(place))
    return tuple(word.reshape(*map(wrap, shape)) for word in words)


def _halves(wide: Tensor) -> tuple[Tensor, Tensor]:
    """The low and the high 32 bits of uint64."""
    return wide.cast(dtypes.uint32), (wide >> 32).cast(dtypes.uint32)


def uniform(shape, low: float = 0.0, high: float = 1.0, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    """Numbers low <= x < high with equal chances; from 0 to 1 every bit is the same on every device."""
    dtype = _float_dtype("uniform", dtype)
    first, second = random_bits(shape, device)
    if dtype is dtypes.float64:
        unit = (_joined(first, second) >> 11).cast(dtype) * 2.0 ** -53
    else:
        digits = {dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}[dtype]
        unit = (first >> 32 - digits).cast(dtype) * 2.0 ** -digits
    return unit if (low, high) == (0.0, 1.0) else unit * (high - low) + low


def normal(shape, mean: float = 0.0, std: float = 1.0, dtype=dtypes.float32, device: str | None = None) -> Tensor:
    """Numbers of the normal distribution, by Box and Muller: sqrt(-2 ln u) sin(2 pi v)."""
    dtype = _float_dtype("normal", dtype)
    first, second = random_bits(shape, device)
    work = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    u = ((first >> 8).cast(work) + 1.0) * 2.0 ** -24  # never 0, whose logarithm is -inf
    v = (second >> 8).cast(work) * 2.0 ** -24
    value = (u.log() * -2.0).sqrt() * (v * (2.0 * math.pi)).sin()
    return (value * std + mean).cast(dtype)


def randint(low: int, high: int, shape, dtype=dtypes.int64, device: str | None = None) -> Tensor:
    """Integers low <= x < high with equal chances, up to 1 part in 2^64 / (high - low)."""
    dtype = as_dtype(dtype)
    if not low < high or high - low >= 1 << 64:
        raise BoundsError(f"randint: low is {low} and high is {high}; low must be below high")
    if not dtype.is_int:
        raise DTypeError(f"randint: dtype is {dtype}; an integer dtype is needed")
    place = (_joined(*random_bits(shape, device)) % (high - low)).cast(dtypes.int64)
    return (place + low).cast(dtype)


def _joined(low: Tensor, high: Tensor) -> Tensor:
    """The uint64 of two words."""
    return low.cast(dtypes.uint64) | high.cast(dtypes.uint64) << 32


def _float_dtype(name: str, dtype):
    dtype = as_dtype(dtype)
    if not dtype.is_float:
        raise DTypeError(f"{name}: dtype is {dtype}; a float dtype is needed")
    return dtype
