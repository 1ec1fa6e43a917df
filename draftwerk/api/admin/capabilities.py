"""What this server obeys and what it refuses, read from the Structs that check the requests."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct, inspect

from draftwerk.api.requests.field_rows import rows_of
from draftwerk.api.shared.handling import Endpoint
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.field_faults import described
from draftwerk.speculative.requests.declared_segments import RULES
from draftwerk.speculative.sources.registry import SOURCES, SourceSpec


def capabilities(states: Sequence[ServerState], endpoints: Iterable[Endpoint]) -> dict[str, object]:
    """Return the document of `/v1/capabilities`: of the first model, and of all where there are
    several."""
    cards = [_card(state.model) for state in states]
    return {
        **cards[0],
        **({"models": cards} if len(cards) > 1 else {}),
        "origins": [_legend(spec) for spec in SOURCES],
        "endpoints": {each.path: _fields(each.body) for each in endpoints if each.body is not None},
    }


def _card(card: ServedModel) -> dict[str, object]:
    """Return what one model does; where it was never loaded, as far as its files tell."""
    return {
        "model": card.name,
        "aliases": card.aliases,
        "adapters": {each.name: each.digest for each in card.adapters},
        "reasons": card.reasons,
        "tools": "tools" in card.capabilities,
        "chat_template_kwargs": card.variables,
        "template_documents": card.shows_documents,
        "context_max": card.context_max,
        "exact": card.exact,
        "device": card.device,
        "dtype": card.dtype,
        "weights": card.weights or None,
        "attention": card.attention,
        "pipeline_parallel": card.pipeline_parallel,
        "tensor_parallel": card.tensor_parallel,
        "draft_model": card.draft_model or None,
        "draft_sources": card.draft_sources,
        "blend": _blend(card) if card.blends else None,
        "approximations": card.approximations,
        "approximation_quality": card.quality,
        "embedding": card.vectors,
        "rerank": card.rerank is not None,
    }


def _legend(spec: SourceSpec) -> dict[str, str]:
    """Return how tokens of a source are shown: what it drafts, and its colours on a page."""
    colour = spec.colour
    return {
        "name": spec.name,
        "meaning": spec.meaning,
        "light": colour.light,
        "dark": colour.dark,
    }


def _blend(card: ServedModel) -> dict[str, object]:
    """Return what may be asked of `blend`, and what true stands for."""
    return {
        "exact": False,
        "rules": RULES,
        "default": {"rule": card.blend.rule, "ratio": card.blend.ratio},
    }


def _fields(body: type[Struct]) -> dict[str, object]:
    """Return the fields of a body: what the taken ones may hold, and which are refused.

    `no_effect` is why a taken field changes nothing, `instead` what to use for a refused one.
    """
    rows = rows_of(body)
    refused = {name: row.words for name, row in rows.items() if row.is_refused}
    return {
        "supported": {
            each.encode_name: described(inspect.type_info(each.type))
            for each in msgspec.structs.fields(body)
            if each.encode_name not in refused
        },
        "no_effect": {name: row.words for name, row in rows.items() if not row.is_refused},
        "unsupported": list(refused),
        "instead": {name: words for name, words in refused.items() if words},
    }
