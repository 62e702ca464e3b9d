"""How this process's C library deals with memory that is freed: glibc's `mallopt`."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -2, -3, -4, -8  # glibc's numbers


def set_malloc(settings: dict[int, int]) -> bool:
    """Whether all of them were accepted; False where the C library cannot be told."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    accepted = [mallopt(name, value) for name, value in settings.items()]
    return all(accepted)
