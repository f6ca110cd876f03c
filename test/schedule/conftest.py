"""The devices that run a schedule, and small tiles."""
import pytest

import scheduled


@pytest.fixture(params=scheduled.DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=[(8, 4, 2, 2, (3, 2)), (40, 50, 7, 5, (4, 16))], ids=["tiny", "small"])
def small_tiles(request, monkeypatch):
    scheduled.small_tiles(monkeypatch, *request.param)
    yield
    monkeypatch.undo()
    scheduled.forget_kernels()
