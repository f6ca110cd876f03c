"""Running kernels: the seam of backends, realize, capture and replay, disk cache, statistics. Not for devices."""
