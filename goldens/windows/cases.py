"""The calls that the golden of windows holds: one name, arguments and shapes for torch and minivt alike.

A case is (function, shapes of its tensors, keyword arguments). Not for running them (generate.py, the tests).
"""
CASES = [
    ("conv1d", [(2, 6, 17), (8, 6, 5), (8,)], {}),
    ("conv1d", [(1, 4, 20), (6, 2, 3), (6,)], dict(stride=2, padding=3, dilation=2, groups=2)),
    ("conv1d", [(2, 5, 13), (5, 1, 4)], dict(padding="same", groups=5)),
    ("conv1d", [(1, 3, 5), (2, 3, 5)], dict(padding="valid")),
    ("conv1d", [(3, 3, 9), (4, 3, 1)], dict(stride=4)),
    ("conv2d", [(2, 3, 9, 11), (4, 3, 3, 3), (4,)], dict(padding=1)),
    ("conv2d", [(1, 6, 9, 10), (8, 3, 3, 2), (8,)], dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)),
    ("conv2d", [(2, 8, 7, 7), (8, 1, 3, 3)], dict(padding=1, groups=8)),
    ("conv2d", [(1, 4, 8, 8), (8, 1, 3, 3)], dict(padding=1, groups=4, stride=2)),
    ("conv2d", [(2, 16, 5, 6), (20, 16, 1, 1)], {}),
    ("conv2d", [(1, 3, 12, 12), (5, 3, 4, 4)], dict(stride=4)),
    ("conv2d", [(1, 2, 6, 7), (3, 2, 4, 2)], dict(padding="same", dilation=(1, 2))),
    ("conv2d", [(1, 20, 18, 20), (24, 20, 3, 3), (24,)], dict(padding=1)),
    ("conv3d", [(1, 2, 5, 6, 7), (3, 2, 3, 2, 3), (3,)], dict(padding=(1, 0, 1), stride=(1, 2, 1))),
    ("conv3d", [(1, 4, 4, 5, 6), (4, 2, 2, 2, 2)], dict(dilation=(2, 1, 2), groups=2)),
    ("conv_transpose1d", [(2, 6, 7), (6, 4, 5), (4,)], dict(stride=3, padding=1, output_padding=2)),
    ("conv_transpose1d", [(1, 4, 6), (4, 3, 4)], dict(stride=2, dilation=3, groups=2)),
    ("conv_transpose1d", [(1, 4, 6), (4, 3, 3)], dict(stride=4, dilation=2, padding=2)),
    ("conv_transpose1d", [(1, 2, 5), (2, 2, 2)], dict(stride=5)),
    ("conv_transpose1d", [(2, 3, 8), (3, 5, 3)], {}),
    ("conv_transpose2d", [(1, 4, 5, 6), (4, 3, 4, 4), (3,)], dict(stride=2, padding=1)),
    ("conv_transpose2d", [(2, 6, 4, 5), (6, 2, 3, 2), (4,)],
     dict(stride=(2, 4), padding=1, output_padding=(1, 0), groups=2, dilation=(3, 2))),
    ("conv_transpose2d", [(1, 3, 4, 4), (3, 2, 3, 3)], dict(stride=(1, 3), padding=(2, 0))),
    ("max_pool1d", [(2, 3, 11)], dict(kernel_size=3)),
    ("max_pool1d", [(2, 3, 11)], dict(kernel_size=3, stride=2, padding=1, dilation=2)),
    ("max_pool2d", [(2, 3, 8, 8)], dict(kernel_size=2)),
    ("max_pool2d", [(1, 4, 9, 11)], dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)),
    ("max_pool2d", [(1, 2, 7, 9)], dict(kernel_size=(3, 2), stride=(1, 3), ceil_mode=True)),
    ("max_pool3d", [(1, 2, 5, 6, 7)], dict(kernel_size=2, stride=(2, 1, 2), padding=1)),
    ("avg_pool1d", [(2, 3, 11)], dict(kernel_size=4, stride=3, padding=2)),
    ("avg_pool1d", [(2, 3, 11)], dict(kernel_size=4, stride=3, padding=2, ceil_mode=True, count_include_pad=False)),
    ("avg_pool2d", [(2, 3, 8, 8)], dict(kernel_size=2)),
    ("avg_pool2d", [(1, 4, 9, 12)], dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)),
    ("avg_pool2d", [(1, 4, 9, 12)], dict(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)),
    ("avg_pool3d", [(1, 2, 5, 6, 7)], dict(kernel_size=(2, 3, 2), stride=2, padding=1)),
    ("adaptive_avg_pool1d", [(2, 3, 11)], dict(output_size=4)),
    ("adaptive_avg_pool2d", [(2, 3, 7, 8)], dict(output_size=(3, 4))),
    ("adaptive_avg_pool2d", [(2, 3, 7, 8)], dict(output_size=1)),
    ("adaptive_avg_pool2d", [(1, 2, 3, 4)], dict(output_size=(5, 6))),
    ("adaptive_avg_pool3d", [(1, 2, 5, 6, 7)], dict(output_size=(2, 3, 3))),
    ("adaptive_max_pool1d", [(2, 3, 11)], dict(output_size=4)),
    ("adaptive_max_pool2d", [(2, 3, 7, 8)], dict(output_size=(3, 4))),
    ("adaptive_max_pool3d", [(1, 2, 5, 6, 7)], dict(output_size=(2, 6, 3))),
]


def label(number: int) -> str:
    """The key of a case in the golden and the id of its test."""
    return f"{number:02}-{CASES[number][0]}"
