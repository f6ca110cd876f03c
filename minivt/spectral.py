"""Fourier transforms of short frames of a Tensor: STFT and its inverse. Not for transforms of long signals.

A complex number is a last axis of 2, real and imaginary part. A transform is a product with cosines from a table; the
place in the table is reduced modulo its length in integers, so that no angle is large and none loses bits.
"""
from __future__ import annotations

from functools import lru_cache

import numpy as np

from minivt import dtypes
from minivt.contraction import contract
from minivt.errors import ShapeError
from minivt.real_functions import real_function
from minivt.variable import shape_text


class Spectral:
    """The methods of Tensor that go to frequencies and back."""
    __slots__ = ()

    @real_function
    def stft(self, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window=None,
             center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool = True):
        """out[..., k, f, :] = sum over t of window[t] * self[..., f * hop_length + t] * exp(-2 pi i k t / n_fft).

        self: (..., samples) of real numbers; result: (..., frequencies, frames, 2), with n_fft // 2 + 1 frequencies or
        all n_fft if not onesided. hop_length: n_fft // 4 by default; window: (win_length,), ones by default, with zeros
        around it if it is shorter than n_fft; center: whether frame f is centred at f * hop_length, on a signal that
        is padded by pad_mode; normalized: whether results are divided by sqrt(n_fft). As torch.stft. ShapeError where
        sizes do not fit.
        """
        hop_length, window = self._frame_plan("stft", n_fft, hop_length, win_length, window)
        x = self
        if center:
            x = x.pad([(0, 0)] * (x.ndim - 1) + [(n_fft // 2, n_fft // 2)], mode=pad_mode)
        if x._fixed_size("stft", x.ndim - 1) < n_fft:
            raise ShapeError(f"stft: the tensor has shape {shape_text(self.node.shape)}; at least one frame of {n_fft} "
                             "samples is needed")
        frames = x.unfold(-1, n_fft, hop_length)                       # (..., frames, n_fft)
        count = n_fft // 2 + 1 if onesided else n_fft
        waves = self._waves(n_fft, count) * window                     # (frequencies, 2, n_fft)
        spectrum = contract("stft", [frames.unsqueeze(-2).unsqueeze(-2), waves], (-1,)).transpose(-2, -3)
        return spectrum * n_fft ** -0.5 if normalized else spectrum

    @real_function
    def istft(self, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window=None,
              center: bool = True, normalized: bool = False, onesided: bool = True, length: int | None = None):
        """The signal whose stft with the same arguments is nearest to this: frames, overlapped and added.

        self: (..., frequencies, frames, 2); result: (..., samples), `length` of them where it is given. Each sample is
        divided by the sum of the squares of the windows over it: NaN where all of them are 0. As torch.istft.
        """
        count = n_fft // 2 + 1 if onesided else n_fft
        if self.ndim < 3 or self.node.shape[-1] != 2 or self.node.shape[-3] != count:
            raise ShapeError(f"istft: the tensor has shape {shape_text(self.node.shape)}; (..., {count} frequencies, "
                             "frames, 2) is needed")
        hop_length, window = self._frame_plan("istft", n_fft, hop_length, win_length, window)
        frames = self._fixed_size("istft", self.ndim - 2)
        half = n_fft // 2 + 1  # the rest mirrors it, for the signal is real
        both = np.ones(half, np.float32)
        both[1:(n_fft + 1) // 2] = 2.0
        scale = self._coerce(both * (n_fft ** -0.5 if normalized else 1.0 / n_fft)).cast(self.dtype)
        waves = self._waves(n_fft, half) * scale._reshaped((half, 1, 1))
        spectrum = self._slice_axis(self.ndim - 3, 0, half).transpose(-2, -3)  # (..., frames, frequencies, 2)
        signal = contract("istft", [spectrum.unsqueeze(-1), waves], (-3, -2)) * window         # (..., frames, n_fft)
        weight = (window * window).broadcast_to(frames, n_fft)._overlapped(hop_length)
        start = n_fft // 2 if center else 0
        signal, total = signal._overlapped(hop_length), n_fft + hop_length * (frames - 1)
        kept = min(length, total - start) if length is not None else total - 2 * start
        signal = signal._slice_axis(signal.ndim - 1, start, kept) / weight._slice_axis(0, start, kept)
        if length is not None and length > kept:
            signal = signal.pad([(0, 0)] * (signal.ndim - 1) + [(0, length - kept)])
        return signal

    def _frame_plan(self, name: str, n_fft: int, hop_length, win_length, window):
        """hop_length and the window of n_fft elements."""
        hop_length = n_fft // 4 if hop_length is None else hop_length
        win_length = n_fft if win_length is None else win_length
        if not 0 < win_length <= n_fft or hop_length < 1 or not self.ndim:
            raise ShapeError(f"{name}: n_fft is {n_fft}, win_length {win_length} and hop_length {hop_length} for shape "
                             f"{shape_text(self.node.shape)}; a window of 1 to n_fft and a positive hop are needed")
        if window is None:
            window = self._coerce(np.ones(win_length, np.float32))
        if window.node.shape != (win_length,):
            raise ShapeError(f"{name}: window has shape {shape_text(window.node.shape)}; ({win_length},) is needed")
        before = (n_fft - win_length) // 2
        return hop_length, window.cast(self.dtype).pad(((before, n_fft - win_length - before),))

    def _waves(self, n: int, count: int):
        """cos(2 pi k t / n) and -sin(2 pi k t / n). Shape: (count, 2, n) for k, the two, and t."""
        return self._coerce(_waves(n, count, self.dtype.name))

    def _overlapped(self, hop: int):
        """out[..., s] = the sum over frames f of self[..., f, s - f * hop], for s < n + hop * (frames - 1).

        With s = q * hop + r, frame q - j gives its element j * hop + r.
        """
        *front, frames, n = self.node.shape
        parts = -(-n // hop)
        still = [(0, 0)] * len(front)
        padded = self.pad([*still, (parts - 1, parts - 1), (0, parts * hop - n)])
        rows = padded._reshaped((*front, (frames + 2 * parts - 2) * parts, hop))
        turns = frames + parts - 1
        meeting = rows._places(2, {0: (turns, parts), 1: (parts, 1 - parts)}, (parts - 1) * parts)
        summed = rows.take(meeting.cast(dtypes.uint32), len(front)).sum(len(front) + 1)
        whole = summed._reshaped((*front, turns * hop))
        return whole._slice_axis(len(front), 0, n + hop * (frames - 1))


@lru_cache(maxsize=8)
def _waves(n: int, count: int, dtype: str) -> np.ndarray:
    """The matrix of a transform. -sin a is cos(a + pi / 2), so both are places in one table of 4 n cosines, n apart."""
    table = np.cos(np.arange(4 * n) * (np.pi / (2 * n))).astype(dtype)
    k, part, t = np.ogrid[:count, :2, :n]
    return table[(k * t % n * 4 + part * n) % (4 * n)]
