"""Datasets made by the program itself: `suite` lists and writes them, the other files draw them."""

from rayctsl.data.embedded.suite import (
    EMBEDDED,
    EMBEDDED_VERSION,
    SOURCES,
    TARGETS,
    EmbeddedDataset,
    make_dataset,
)

__all__ = ["EMBEDDED", "EMBEDDED_VERSION", "SOURCES", "TARGETS", "EmbeddedDataset", "make_dataset"]
