"""The facts of a model that the rest of the server needs: numbers and names, read without torch."""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import msgspec

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.config import LayerGroup, ModelConfig
from draftwerk.model.checkpoint.end_tokens import end_tokens
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.footprint import gguf_loading_bytes, gguf_packed_bytes, what_fits
from draftwerk.model.checkpoint.gguf_card import GgufCard, read_card
from draftwerk.model.checkpoint.hf_config import model_config, read_generation, read_supported
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.inventory import check_tensors
from draftwerk.model.checkpoint.quantised.scheme import scheme_of
from draftwerk.model.checkpoint.quantised.scheme_tensors import collapsed
from draftwerk.model.checkpoint.stacked_experts import unstacked
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.text_part import text_tensors
from draftwerk.model.checkpoint.vector_form import vector_form
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from draftwerk.speculative.requests.pooling import VectorForm


class TokenHeads(NamedTuple):
    """Heads of keys and values of one token."""

    heads: int
    """In all planes of some layers."""
    size: int


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a few numbers."""

    name: str
    directory: str
    vocab_size: int
    context_max: int
    eos_token_ids: tuple[int, ...]
    kv_heads_per_token: int
    """Keys and values, of all planes of the pages."""
    head_size: int
    state_bytes: int = 0
    """The bytes of a slot for a recurrent state; 0 where no layer is recurrent."""
    window: int = 0
    """The longest attention window of its layers; 0 where none has one."""
    window_heads: TokenHeads = TokenHeads(0, 0)
    """The heads of layers with windows, where they have blocks of their own."""
    other_heads: TokenHeads = TokenHeads(0, 0)
    """Then of the others."""
    kept: int = 0
    """Positions at a text's beginning that tokens see beside their window."""
    draft_head_bytes: int = 0
    """The bytes of the draft head that it is served with."""
    family: str = ""
    """Its architecture, as its configuration calls it."""
    stored_format: str = "bf16"
    """The weights' own: bf16 for whole numbers of any width, stored for quantised ones."""
    stored_kinds: dict[str, int] = {}
    """Bytes of the matrices in each type, the most first; empty for whole numbers."""
    file_format: str = ""
    """A quantised file's name for its types, such as Q4_K_M or AWQ."""
    method: str = ""
    """By what `draftwerk quantise` rounded it, where not each number by itself."""
    stored_bytes: int = 0
    """The bytes of the weights as they are read."""
    elements: int = 0
    """Numbers in all weights."""
    sampling: SamplingDefaults = SamplingDefaults()
    """The sampling that its makers recommend, as far as it is obeyed."""
    sampling_source: str = ""
    """Where they say so."""
    suppressed: tuple[int, ...] = ()
    """Tokens that its makers bar from every text."""
    vectors: VectorForm = VectorForm()
    """How vectors are made of texts."""

    def loading_bytes(self, dtype: str) -> int:
        """Return the memory that loading takes at its most; safetensors are read into it first."""
        if not self.stored_kinds:
            return 2 * self.stored_bytes
        return gguf_loading_bytes(self.stored_bytes, self.elements, dtype)

    def packed_bytes(self, dtype: str) -> int:
        """Return what weights take that are packed layer by layer; 0 if all are in memory first."""
        if not self.stored_kinds:
            return 0
        return gguf_packed_bytes(self.stored_bytes, self.elements, dtype)

    def remedy(self, free: int) -> str:
        """Return what would fit into memory."""
        return what_fits(self.elements, free)

    @property
    def stored_text(self) -> str:
        """The types that a GGUF is made of, for people; empty for safetensors."""
        sizes = [f"{kind} {size / 1e6:.0f} MB" for kind, size in self.stored_kinds.items()]
        named = f"{self.file_format}: " if self.file_format else ""
        method = f", by {self.method}" if self.method else ""
        return f"{named}{', '.join(sizes)}, as in the file{method}" if sizes else ""


def read_info(location: Location, pooling: str = "auto") -> ModelInfo:
    """Read a located model's card. Raises Refused for a model that is not served.

    `pooling` is as in `vector_form`. Whatever can be refused without torch is refused here, before
    a process is started for it.
    """
    hf = read_supported(location.directory)
    card = read_card(location.directory)
    held = _safetensors(location, hf) if card is None else _gguf(card)
    generation = read_generation(location.directory)
    config = model_config(hf, generation)
    together, windowed, others = (
        _cached_heads(config, group) for group in ("all", "windowed", "others")
    )
    return ModelInfo(
        **held,
        name=location.name,
        directory=str(location.directory),
        vocab_size=config.vocab_size,
        context_max=config.context_max,
        eos_token_ids=end_tokens(location.directory, hf, generation),
        kv_heads_per_token=together.heads,
        head_size=together.size,
        state_bytes=4 * config.state_size,
        window=max((kind.window for kind in config.layers), default=0),
        window_heads=windowed,
        other_heads=others if windowed.heads else TokenHeads(0, 0),
        family=hf.get("model_type", ""),
        vectors=msgspec.structs.replace(
            vector_form(location.directory, hf, pooling), sees_all=config.graph.sees_all
        ),
    )


def _cached_heads(config: ModelConfig, group: LayerGroup) -> TokenHeads:
    """Return what a group of layers keeps of a token."""
    if group == "windowed" and (config.graph.sees_all or not config.window_plane_count):
        return TokenHeads(0, 0)
    heads = config.widest_keys(group)
    return TokenHeads(2 * config.planes_in(group) * heads.heads, heads.size)


def _safetensors(location: Location, hf: Json) -> dict[str, Any]:
    stored = text_tensors(stored_tensors(location.directory))
    paths = {each.path for each in stored.values()}
    size, scheme = sum(path.stat().st_size for path in paths), scheme_of(hf)
    if scheme is None:
        stored = unstacked(architecture_of(hf), stored)
        check_tensors(hf, stored)
        return {"stored_bytes": size, "elements": _elements(stored)}
    whole, kinds = collapsed(scheme, stored)
    check_tensors(hf, whole)
    return {
        "stored_format": STORED,
        "stored_kinds": kinds,
        "file_format": scheme.name,
        "stored_bytes": size,
        "elements": _elements(whole),
    }


def _elements(tensors: Mapping[str, StoredTensor]) -> int:
    return sum(prod(each.shape) for each in tensors.values())


def _gguf(card: GgufCard) -> dict[str, Any]:
    """Return what a card says of a GGUF's weights. Raises Refused if the file has changed."""
    card.check_unchanged()
    return {
        "stored_format": STORED if card.is_quantised else "bf16",
        "stored_kinds": card.kinds,
        "file_format": card.file_type if card.is_quantised else "",
        "method": card.method,
        "stored_bytes": sum(tensor.size for tensor in card.tensors.values()),
        "elements": card.elements,
    }
