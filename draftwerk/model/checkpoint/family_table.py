"""The families that are served, for people: a row for each class of the table of architectures."""

from collections.abc import Iterator
from typing import NamedTuple

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.families.architecture import Architecture

ANY_DRAFTS = "a model"


class FamilyRow(NamedTuple):
    """A class of Transformers as it is served."""

    family: str
    """Its `model_type`."""
    classes: tuple[str, ...]
    """The class, and those that have it as the text beside images or sound."""
    gguf: str
    """The name of it in llama.cpp; empty where its files are not read."""
    devices: str
    layers: str
    """How its layers differ from Llama's."""
    drafts: str
    """The drafters for it beside sources that need the text alone, and heads trained for it."""

    @property
    def files(self) -> str:
        return f"safetensors, GGUF ({self.gguf})" if self.gguf else "safetensors"


def family_rows() -> Iterator[FamilyRow]:
    """Yield the rows in the order of the table."""
    for row in ARCHITECTURES:
        yield FamilyRow(
            row.model_type,
            (row.hf_name, *row.wrappers),
            row.gguf_name or "",
            "CPU" if row.summary else "CPU, GPU, ranks",
            row.summary or "as Llama's",
            ", ".join(each for each, drafts in _drafting(row) if drafts),
        )


def _drafting(row: Architecture) -> tuple[tuple[str, bool], ...]:
    return (
        (ANY_DRAFTS, row.recurrence is None),
        ("its MTP layer", row.has_mtp),
        ("its assistant", row.has_assistant),
    )
