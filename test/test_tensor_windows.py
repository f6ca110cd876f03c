"""Convolutions, pooling and unfold: values against the golden of torch, bytes and kernels, errors."""
import runpy
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from comparison import check, random_array
from minivt import Tensor, stats
from minivt.errors import ShapeError

FOLDER = Path(__file__).parents[1] / "goldens" / "windows"
GOLDEN = load_file(FOLDER / "windows.safetensors")
TABLE = runpy.run_path(str(FOLDER / "cases.py"))
CASES, LABEL = TABLE["CASES"], TABLE["label"]
TOLERANCE = 2e-6  # relative to the largest element


@pytest.mark.parametrize("number", range(len(CASES)), ids=LABEL)
def test_golden(number):
    name, shapes, arguments = CASES[number]
    first, *others = (Tensor(GOLDEN[f"{LABEL(number)}.{i}"]) for i in range(len(shapes)))
    expected = GOLDEN[f"{LABEL(number)}.out"]
    with stats() as s:
        if name in ("stft", "istft"):
            arguments = dict(arguments, window=others.pop())
        got = getattr(first, name)(*others, **arguments)
        check(got, expected, atol=TOLERANCE * np.abs(expected).max())
    assert s.kernels == 1
    with pytest.raises(AssertionError):
        check(got, np.zeros_like(expected), atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("shape, axis, size, step", [((9,), 0, 3, 1), ((2, 9, 4), 1, 4, 2), ((3, 5), -1, 5, 7),
                                                     ((2, 0, 3), 2, 2, 1), ((8, 3), 0, 2, 2)])
def test_unfold(shape, axis, size, step):
    x = random_array(np.random.default_rng(1), shape, "float32")
    expected = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    expected = np.take(expected, range(0, expected.shape[axis % x.ndim], step), axis % x.ndim)
    check(Tensor(x).unfold(axis, size, step), expected)


def test_windows_are_not_written_to_memory():
    x, w = Tensor(np.ones((1, 32, 40, 40), np.float32)), Tensor(np.ones((48, 32, 3, 3), np.float32))
    with stats() as s:
        x.conv2d(w, padding=1).relu().realize()
    assert s.kernels == 1
    assert s.bytes_read == 4 * (x.size + w.size)  # each element of the image once, not nine times
    assert s.bytes_written == 4 * 48 * 40 * 40


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(dtype):
    rng = np.random.default_rng(2)
    x = Tensor(rng.normal(size=(1, 64, 6, 6)).astype(np.float32)).cast(dtype)
    w = Tensor(rng.normal(size=(8, 64, 3, 3)).astype(np.float32)).cast(dtype)
    exact = x.float().conv2d(w.float()).numpy()
    got = x.conv2d(w)
    assert got.dtype.name == dtype
    np.testing.assert_allclose(got.float().numpy(), exact, rtol=2.0 ** -8, atol=1e-4)
    mean = x.avg_pool2d(3)
    assert mean.dtype.name == dtype
    np.testing.assert_allclose(mean.float().numpy(), x.float().avg_pool2d(3).numpy(), rtol=2.0 ** -8)


def test_pooling_of_integers():
    x = np.arange(-12, 12, dtype=np.int32).reshape(1, 1, 4, 6)
    expected = x.reshape(1, 1, 2, 2, 3, 2).transpose(0, 1, 2, 4, 3, 5)
    check(Tensor(x).max_pool2d(2), expected.max((-1, -2)))
    check(Tensor(x).avg_pool2d(2), expected.mean((-1, -2)).astype(np.float32))
    padded = Tensor(x).max_pool2d(3, padding=1).numpy()
    np.testing.assert_array_equal(padded, [[[[-5, -2], [7, 10]]]])  # padding of 0 would win in the first row


def test_nan_wins_in_its_windows_only():
    x = np.zeros((1, 1, 6), np.float32)
    x[0, 0, 1] = np.nan
    check(Tensor(x).max_pool1d(2), [[np.float32([np.nan, 0, 0])]])


X, W = Tensor(np.zeros((2, 6, 8, 9), np.float32)), Tensor(np.zeros((4, 3, 3, 3), np.float32))


@pytest.mark.parametrize("wrong, message", [
    (lambda: X.conv2d(W), "conv2d: the tensor is (2, 6, 8, 9) and weight (4, 3, 3, 3) in 1 groups; the weight must be "
                          "(outputs, channels / groups, ...)"),
    (lambda: X.conv1d(W), "conv1d: the tensor is (2, 6, 8, 9) and weight (4, 3, 3, 3); (batch, channels and 1 sizes)"),
    (lambda: X.conv2d(W, groups=2, stride=0), "conv2d: stride is 0; an integer of at least 1, or 2 of them, is needed"),
    (lambda: X.conv2d(W, groups=2, padding="full"), "conv2d: padding is 'full'; 'same', 'valid', a size"),
    (lambda: X.conv2d(W, groups=2, padding="same", stride=2), "conv2d: padding is 'same' with stride (2, 2)"),
    (lambda: X.conv2d(W, groups=2, dilation=5),
     "conv2d: axis 2 has 8 elements and 0 + 0 of padding; the kernel spans 11: pad more or take a smaller kernel"),
    (lambda: X.conv2d(W, Tensor([1.0]), groups=2), "conv2d: bias has shape (1,); (4,) is needed"),
    (lambda: X.conv_transpose2d(W), "conv_transpose2d: the tensor is (2, 6, 8, 9) and weight (4, 3, 3, 3) in 1 groups"),
    (lambda: X.conv_transpose2d(Tensor(np.zeros((6, 2, 3, 3), np.float32)), output_padding=1),
     "conv_transpose2d: output_padding is 1 for stride 1 and dilation 1; it must be smaller"),
    (lambda: X.max_pool2d(10), "max_pool2d: a window of 10 with dilation 1 and padding 0 does not fit the 8 elements"),
    (lambda: X.max_pool2d(2, padding=2), "max_pool2d: a window of 2 with dilation 1 and padding 2 does not fit"),
    (lambda: X.avg_pool1d(2), "avg_pool1d: the tensor has shape (2, 6, 8, 9); (batch, channels, and 1 sizes"),
    (lambda: X.unfold(3, 10), "unfold: size 10 and step 1 do not fit the 9 elements of axis 3")])
def test_errors(wrong, message):
    with pytest.raises(ShapeError) as caught:
        wrong()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("mode, numpy_mode", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float64"])
def test_pad_modes_on_any_axis(mode, numpy_mode, dtype):
    x = random_array(np.random.default_rng(4), (4, 5, 6), dtype)
    widths = [(3, 1), (0, 4), (2, 0)]
    check(Tensor(x).pad(widths, mode=mode), np.pad(x, widths, numpy_mode))


def test_transforms_invert_each_other_far_from_the_start():
    x = np.random.default_rng(5).standard_normal((2, 4000)).astype(np.float32)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)).astype(np.float32)
    options = dict(n_fft=400, hop_length=100, window=Tensor(window))
    spectrum = Tensor(x).stft(**options)
    frame = np.pad(x, ((0, 0), (200, 200)), "reflect")[:, 700:1100].astype(np.float64) * window
    exact = np.fft.rfft(frame)
    got = spectrum.numpy()[:, :, 7]
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], exact, atol=2e-6 * np.abs(exact).max())
    np.testing.assert_allclose(spectrum.istft(**options).numpy(), x, atol=1e-5)


@pytest.mark.parametrize("wrong, message", [
    (lambda: X.pad([(0, 0)] * 3), "pad: widths are [(0, 0), (0, 0), (0, 0)] for shape (2, 6, 8, 9); one pair of sizes"),
    (lambda: X.pad([(0, 0)] * 4, mode="edge"), "pad: mode is 'edge'; choose one of constant, reflect, replicate, circ"),
    (lambda: X.pad([(2, 0)] + [(0, 0)] * 3, mode="reflect"),
     "pad: axis 0 has 2 elements and gets 2 and 0 more by mode 'reflect'; at most 1 are possible"),
    (lambda: X.interpolate(4, mode="linear"), "interpolate: mode is 'linear' with align_corners=False for 2 axes; "
                                              "choose one of nearest, nearest-exact, bilinear, bicubic"),
    (lambda: X.interpolate(4, align_corners=True), "interpolate: mode is 'nearest' with align_corners=True for 2 axes"),
    (lambda: X.interpolate(), "interpolate: size is None and scale_factor None; give one of the two"),
    (lambda: X.interpolate(scale_factor=0.1), "interpolate: scale_factor is 0.1 for shape (2, 6, 8, 9); one positive"),
    (lambda: X[0, 0, 0].stft(16, center=False), "stft: the tensor has shape (9,); at least one frame of 16 samples"),
    (lambda: X.stft(4, window=W), "stft: window has shape (4, 3, 3, 3); (4,) is needed"),
    (lambda: X.stft(4, win_length=5), "stft: n_fft is 4, win_length 5 and hop_length 1 for shape (2, 6, 8, 9); a "),
    (lambda: X.istft(4), "istft: the tensor has shape (2, 6, 8, 9); (..., 3 frequencies, frames, 2) is needed")])
def test_errors_of_padding_resampling_and_transforms(wrong, message):
    with pytest.raises(ShapeError) as caught:
        wrong()
    assert str(caught.value).startswith(message)
