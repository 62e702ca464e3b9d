"""Memory that guests' requests took goes back to the system.

By default the C library stops asking the system for large pieces of memory one by one once it has seen some freed, and
gives every thread a heap of its own. What a guest sent then lies between smaller things that stay, and an hour of
pictures and uploads leaves a service a quarter larger, although it holds nothing of them.
"""

from __future__ import annotations

from rayctsl.malloc import ARENA_MAX, MMAP_THRESHOLD, TRIM_THRESHOLD, set_malloc

LARGE = 2**17  # bytes, from which on a piece is the system's, and is given back at once


def return_freed_memory() -> bool:
    """To be called before threads start; False where the C library cannot be told."""
    return set_malloc({ARENA_MAX: 2, MMAP_THRESHOLD: LARGE, TRIM_THRESHOLD: LARGE})
