"""Gated DeltaNet: a recurrent state of keys and values that decays, and is corrected by what it predicts wrongly.

    S = exp(g) S;  S = S + k (β (v - kᵀ S))ᵀ;  out = qᵀ S        for one token, S: (key_dim, value_dim)

For: the linear layers of qwen3_next and qwen3_5, in chunks (Yang et al. 2024, Gated Delta Networks).  Not for: other
linear attention.
"""
from __future__ import annotations

from minivt import Tensor, arange, cat, stack, where, zeros
from minivt.models.attention import Rows
from minivt.models.config import Config
from minivt.models.weights import Linear, Weights, rms_norm

CHUNK = 64                             # tokens whose corrections are solved for together


def lower_inverse(a: Tensor) -> Tensor:
    """(1 + a)⁻¹ for strictly lower triangular a, (..., n, n), n a power of two, by blocks of doubling size.

    With X the inverse of the diagonal blocks of size s, X - X·A·X is that of size 2s, where A holds what of `a` joins
    two of them: substitution in blocks, without powers of `a`, whose cancellation would cost digits.
    """
    n, size = a.shape[-1], 1
    i, j = arange(n)[:, None], arange(n)
    x = where(i == j, 1.0, a * 0)
    while size < n:
        joins = (i // (2 * size) == j // (2 * size)) & (i // size != j // size)
        x = (x - x @ (where(joins, a, 0.0) @ x)).contiguous()
        size *= 2
    return x


def delta_chunk(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The rule over one chunk of tokens.

    q, k: (batch, heads, n, key_dim); v: (batch, heads, n, value_dim); decay (logarithms) and beta: (batch, heads, n);
    state: (batch, heads, key_dim, value_dim).  Returns out like v, and the next state.
    """
    n = q.shape[2]
    i, j = arange(n)[:, None], arange(n)
    total = where(j <= i, decay[:, :, None, :], 0.0).sum(-1)               # decay up to and with each token
    ratio = where(j <= i, total[..., None] - total[:, :, None, :], -float("inf")).exp()
    grown = total.exp()[..., None]                                         # (batch, heads, n, 1)
    beta = beta[..., None]
    system = where(j < i, (k @ k.mT) * ratio, 0.0) * beta
    new = lower_inverse(system) @ (beta * (v - grown * (k @ state)))       # corrections, (batch, heads, n, value_dim)
    new = new.contiguous()
    out = grown * (q @ state) + ((q @ k.mT) * ratio) @ new
    end = total[:, :, n - 1:n]                                             # (batch, heads, 1)
    state = state * end.exp()[..., None] + (k * (end - total).exp()[..., None]).mT @ new
    return out, state


class GatedDelta:
    """q, k, v through a causal convolution, the delta rule, a norm gated by z."""

    def __init__(self, weights: Weights, name: str, config: Config, batch: int):
        self.sizes = s = config.delta
        self.keys, self.values = s.key_heads * s.key_dim, s.value_heads * s.value_dim
        if s.interleaved:
            self.qkvz = Linear(weights, f"{name}.in_proj_qkvz", 2 * self.keys + 2 * self.values, config.width)
            self.ba = Linear(weights, f"{name}.in_proj_ba", 2 * s.value_heads, config.width)
        else:
            self.qkv = Linear(weights, f"{name}.in_proj_qkv", 2 * self.keys + self.values, config.width)
            self.z, self.b, self.a = (Linear(weights, f"{name}.in_proj_{one}", rows, config.width) for one, rows in (
                ("z", self.values), ("b", s.value_heads), ("a", s.value_heads)))
        channels = 2 * self.keys + self.values
        self.kernel = weights.vector(f"{name}.conv1d.weight", channels, 1, s.window)
        self.rate = weights.vector(f"{name}.A_log", s.value_heads)
        self.step = weights.vector(f"{name}.dt_bias", s.value_heads)
        self.norm = rms_norm(weights, f"{name}.norm", s.value_dim, config.eps)              # never zero-centred
        self.out = Linear(weights, f"{name}.out_proj", config.width, self.values)
        self.recent = zeros((batch, s.window - 1, channels))               # inputs that the convolution still sees
        self.state = zeros((batch, s.value_heads, s.key_dim, s.value_dim))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """qkv (batch, tokens, channels), z (batch, tokens, values), b and a (batch, tokens, value_heads)."""
        if not self.sizes.interleaved:
            return self.qkv(x), self.z(x), self.b(x), self.a(x)
        B, T, _ = x.shape
        heads, key, each = self.sizes.key_heads, self.sizes.key_dim, self.values // self.sizes.key_heads
        mixed = self.qkvz(x).reshape(B, T, heads, -1)                      # for each key head: q, k, its v, its z
        parts = [mixed[..., a:b].reshape(B, T, -1) for a, b in (
            (0, key), (key, 2 * key), (2 * key, 2 * key + each), (2 * key + each, 2 * key + 2 * each))]
        ba = self.ba(x).reshape(B, T, heads, 2, -1)
        b, a = (ba[..., one, :].reshape(B, T, -1) for one in (0, 1))
        return cat(parts[:3], -1), parts[3], b, a

    def convolve(self, x: Tensor, rows: Rows) -> Tensor:
        """Each channel over its last `window` inputs, then silu; (batch, tokens, channels) both."""
        T, past = x.shape[1], self.sizes.window - 1
        begun = stack([arange(1) + start > 0 for start in rows.starts])[:, :, None]        # (batch, 1, 1)
        inputs = cat([where(begun, self.recent, 0.0), x], 1).contiguous()
        y = sum(inputs[:, i:i + T] * self.kernel[:, 0, i] for i in range(past + 1))
        self.recent.assign(stack([inputs[row, count:count + past] for row, count in enumerate(rows.counts)]))
        return y.silu()

    def __call__(self, x: Tensor, rows: Rows) -> Tensor:
        B, T, _ = x.shape
        s, group = self.sizes, self.sizes.value_heads // self.sizes.key_heads
        qkv, z, b, a = self.project(x)
        qkv = self.convolve(qkv, rows)
        q, k = (qkv[..., i * self.keys:(i + 1) * self.keys].reshape(B, T, s.key_heads, s.key_dim) for i in (0, 1))
        q, k = (unit(one).repeat(group, 2).transpose(1, 2) for one in (q, k))  # (batch, value_heads, tokens, key_dim)
        v = qkv[..., 2 * self.keys:].reshape(B, T, s.value_heads, s.value_dim).transpose(1, 2)
        valid = rows.valid(T)[..., None]                                   # padding leaves the state as it is
        decay = where(valid, -self.rate.exp() * softplus(a + self.step), 0.0).transpose(1, 2)
        beta = where(valid, b.sigmoid(), 0.0).transpose(1, 2)
        begun = stack([arange(1) + start > 0 for start in rows.starts])[:, :, None, None]
        out, state = [], where(begun, self.state, 0.0)
        for first in range(0, T, CHUNK):
            part = [one[:, :, first:first + CHUNK].contiguous() for one in (q * s.key_dim ** -0.5, k, v, decay, beta)]
            y, state = delta_chunk(*part, state.contiguous())
            out.append(y)
        self.state.assign(state)
        y = (cat(out, 2) if len(out) > 1 else out[0]).transpose(1, 2)      # (batch, tokens, value_heads, value_dim)
        y = self.norm(y) * z.reshape(B, T, s.value_heads, s.value_dim).silu()
        return self.out(y.reshape(B, T, self.values))


def unit(x: Tensor) -> Tensor:
    """x over its length, along the last axis."""
    return x * ((x * x).sum(-1, keepdims=True) + 1e-6).rsqrt()


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return x.maximum(0.0) + ((-x.abs()).exp() + 1.0).log()
