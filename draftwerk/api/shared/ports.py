"""The API's needs of the engine, as protocols that a fake implements as well."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol

import msgspec

from draftwerk.actors.events.client_events import Event
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.settings.approximation_quality import ApproximationQuality
from draftwerk.settings.approximations import AppliedApproximation
from draftwerk.speculative.parameters.bounds import TokenTotal
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.requests.fim import FimTokens
from draftwerk.speculative.requests.pooling import RerankForm, VectorForm


class EngineClient(Protocol):
    """The part of `actors.engine.Engine` that the API uses."""

    def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Submit a request; leaving the block cancels whatever is left of it."""
        ...

    def snapshot(self) -> Snapshot: ...

    def trace(self) -> list[dict[str, object]]:
        """Return what the actors did lately, in Chrome's trace format."""
        ...

    async def drain(self) -> None: ...


class ReceiptPicture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A picture of a prompt, as a receipt has it."""

    digest: Annotated[str, msgspec.Meta(max_length=64)]
    """SHA-256 of its bytes."""
    features: Annotated[str, msgspec.Meta(max_length=64)]
    """SHA-256 of its rows of embeddings, as 32-bit floats."""
    places: Annotated[tuple[tuple[TokenTotal, TokenTotal], ...], msgspec.Meta(max_length=2**14)]
    """(start, stop) of its rows among the prompt's tokens, ascending."""


class PictureFault(Exception):
    """A picture of a receipt that cannot be put into its prompt: field, reason, and whether it is
    because other features are computed."""

    def __init__(self, field: str, reason: str, is_different: bool = False) -> None:
        super().__init__(reason)
        self.field, self.reason, self.is_different = field, reason, is_different


class BodyReader(Protocol):
    """Takes out of bodies what their schemas do not know, and puts a text in its place."""

    def count(self, prompt: tuple[int, ...], /) -> int:
        """Return how many tokens of a prompt stand for what it put there."""
        ...

    def told(
        self, prompt: tuple[int, ...], /
    ) -> tuple[tuple[int, ...], tuple[ReceiptPicture, ...]]:
        """Return a prompt as a receipt has it, and its pictures."""
        ...

    def placed(
        self, tokens: tuple[int, ...], pictures: Sequence[ReceiptPicture], sent: Sequence[str], /
    ) -> tuple[int, ...]:
        """Return a prompt with the pictures of a receipt, which are among those that were sent, by
        what stands for them. Raises PictureFault."""
        ...

    async def read(
        self, path: str, raw: bytes, tenant: str, holds: list[Callable[[], None]], /
    ) -> bytes:
        """Return the body; what it needs is kept until `holds` are called. Raises ApiError."""
        ...


class ReceiptSigner(Protocol):
    """Signs with a key that it keeps."""

    @property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        ...

    def signature(self, digest: str) -> str:
        """Return the signature of a digest, in hexadecimal digits."""
        ...


class ServedAdapter(msgspec.Struct, frozen=True):
    """A LoRA adapter that requests may name."""

    name: str
    digest: str
    """The digest of all that decides what it computes."""


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The description of the models for clients and the banner; counts of tokens unless stated
    otherwise."""

    name: str
    """The model's name in replies."""
    aliases: tuple[str, ...] = ()
    """Other names of it that requests may use."""
    adapters: tuple[ServedAdapter, ...] = ()
    """Beside it; a request has one by its name behind the model's and a colon, or by `lora`."""
    adapter: str = ""
    """The digest of a request's own adapter."""
    context_max: int
    vocab_size: int = 0
    family: str = ""
    """Its architecture, as its checkpoint calls it."""
    stored_bytes: int = 0
    """The bytes of its weights as they are read."""
    file_format: str = ""
    """A quantised GGUF's name for its mix of types, such as Q4_K_M; empty for another file."""
    sampling: SamplingDefaults = SamplingDefaults()
    """The sampling that its makers recommend, for requests that do not say it."""
    sampling_source: str = ""
    """Where they say so."""
    suppressed: tuple[int, ...] = ()
    """Tokens that its makers bar from every text."""
    draft_model: str = ""
    draft_sources: tuple[str, ...] = ()
    """Names that `speculation.methods` may hold."""
    device: str = ""
    dtype: str = ""
    weights: str = ""
    """The content of a file that is served as it is: its types, and their sizes."""
    attention: str = ""
    kernels: str = ""
    """The native kernels' instruction set and origin, or why a CPU has none."""
    pipeline_parallel: int = 1
    """Stages that its layers are divided among."""
    tensor_parallel: int = 1
    """Processes that share the columns of each product."""
    fingerprint: str = ""
    """`system_fingerprint`: equal ones, with equal requests and seeds, give equal bytes."""
    exact: bool = False
    """Whether logits do not depend on the batch, so that one seed gives one text, bit for bit."""
    created: int = 0
    """Unix seconds."""
    chats: bool = True
    """Whether it has a chat template."""
    reasons: bool = False
    """Whether it writes down its reasoning before its answer."""
    calls: CallFormat | None = None
    """How it writes calls of tools; None where it has no way."""
    tool_note: str = ""
    """Where its descriptions of tools and its form of calls come from."""
    reasoning: ReasoningFormat | None = None
    """How it sets its reasoning apart; None where it has no way that is known."""
    fim: FimTokens | None = msgspec.field(default=None, name="middle")
    """Tokens that ask for the text between two others; None where its vocabulary has no tokens for
    it."""
    vectors: VectorForm = VectorForm()
    """How it makes vectors of texts."""
    rerank: RerankForm | None = None
    """How it is asked whether a document answers a query; None for one that is no reranker."""
    variables: tuple[str, ...] = ()
    """Variables that `chat_template_kwargs` may hold."""
    shows_documents: bool = False
    """Whether its chat template has a place for `documents`."""
    approximations: tuple[AppliedApproximation, ...] = ()
    """Approximations that every text is computed with; requests may ask for more."""
    quality: ApproximationQuality | None = None
    """How far that is from the exact model; None where it was never measured."""
    blends: bool = False
    """Whether segments can be reused with this model, device and format."""
    blend: Blend = Blend(())
    """The blend that `blend: true` stands for, as measured."""
    attached: tuple[str, ...] = ()
    """Capabilities of what attaches to it, in Ollama's words."""

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Its capabilities, in Ollama's words."""
        writes = not self.vectors.sees_all
        kinds = {
            "completion": writes,
            "tools": writes and self.calls is not None,
            "thinking": writes and self.reasoning is not None,
            "insert": writes and self.fim is not None,
            "embedding": bool(self.vectors.source) or not writes,
        }
        return (*(kind for kind, there in kinds.items() if there), *self.attached)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may give."""
        own = (self.name, *self.aliases)
        return (*own, *(f"{name}:{each.name}" for each in self.adapters for name in own))

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The names of its adapters without its own, where no other model has the name."""
        return tuple(each.name for each in self.adapters)

    def adapted(self, digest: str) -> "ServedModel | None":
        """Return what clients are shown of it with an adapter; None without that one."""
        if not digest:
            return self
        found = next((each for each in self.adapters if each.digest == digest), None)
        return None if found is None else self.with_adapter(found)

    def with_adapter(self, adapter: ServedAdapter) -> "ServedModel":
        """Return what clients are shown of it with an adapter of its own."""
        return msgspec.structs.replace(
            self,
            name=f"{self.name}:{adapter.name}",
            fingerprint=self.fingerprint and f"{self.fingerprint}+{adapter.digest}",
            adapter=adapter.digest,
        )


class ShelvedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is loaded when it is asked for."""

    model: ServedModel
    """As far as its files tell."""
    text_tools: TextTools
    load: "Callable[[Callable[[str], None]], AbstractAsyncContextManager[RunningServer]]"
    """Runs it while the block lasts; told how far loading is."""
    memory_bytes: int
    """The most memory that it takes while it runs."""
    keep_alive_s: float
    """How long it stays loaded without a request."""
    is_pinned: bool = False
    """Whether it is loaded at the start, and stays."""


class ShelvedModels(msgspec.Struct, frozen=True, kw_only=True):
    """Several models of one server."""

    models: tuple[ShelvedModel, ...]
    """The first is the default."""
    memory_bytes: int
    """The memory that those that are loaded may take together."""


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A system that serves: what `build` yields."""

    engine: EngineClient
    text_tools: TextTools
    model: ServedModel
    places: Callable[[], int] | None = None
    """How many requests it holds at once, where that changes; 0 where it is not known."""
    bodies: BodyReader | None = None
    shelved: ShelvedModels | None = None
    """All models where there are several; the others are of the first then."""
