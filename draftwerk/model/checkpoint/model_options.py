"""How one model is to run."""

import msgspec

from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.work import StepLoad

NATIVE = "native"
"""The attention that comes with the C++ forward."""
TRANSFORMERS = "transformers"
"""The backend of models that only Transformers knows."""


class LoraFolder(msgspec.Struct, frozen=True):
    """An adapter's folder, and the digest that it had when the server was started."""

    path: str
    digest: str


class AttentionWindow(msgspec.Struct, frozen=True):
    """The window that a token sees, in positions."""

    size: int
    """The number of the last ones, its own among them."""
    kept: int
    """The number of the first ones."""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one model is to run; it crosses to a device process as JSON, which is checked there."""

    source: str | None = None
    """A directory, GGUF file or hub name; None is the embedded default."""
    dtype: str = "bf16"
    device: str = "auto"
    attention: str = "auto"
    backend: str = "auto"
    """`auto` for declared architectures, or `transformers`."""
    exact: bool = False
    """Whether a token's logits must not depend on its batch; on a CPU they never do by default."""
    threads: int = 0
    """0 means as many as are fastest, of the CPUs that affinity and the container's quota leave."""
    kv_dtype: str = "auto"
    """The format of keys and values: auto (as the activations), int8 on a CPU, or fp8 on a GPU."""
    lora: tuple[LoraFolder, ...] = ()
    """Adapters that rows may have."""
    lora_merge: tuple[LoraFolder, ...] = ()
    """Adapters that all rows have, merged into the weights as they are read."""
    block_count: int = 256
    block_size: int = 16
    state_slots: int = 0
    """The slots of a model with recurrent layers."""
    window: AttentionWindow | None = None
    """The window of a model without one."""
    window_blocks: int = 0
    """Blocks that layers with windows have of their own; 0 where all layers share theirs."""
    sources: tuple[str, ...] | None = None
    """Draft sources that run beside the target; None where drafts come with the rounds."""
    draft: "ModelOptions | None" = None
    """The draft model among them."""
    draft_head: str = "off"
    """A file, "auto" for the one that came for this model if one did, or "off"."""
    successor_count: int = 0
    """How many of the best next tokens to report of every node computed."""
    pages_descriptor: int = -1
    """The descriptor of shared memory for the pages, which the parent owns; -1: the process has its
    own."""
    hands_over_pages: bool = False
    """Whether pages outlive the server, or reach others: their names then tell the weights' bytes,
    wherever these lie."""
    weights_descriptor: int = -1
    """The descriptor of shared memory for packed weights, likewise."""
    draft_weights_descriptor: int = -1
    """The same of the draft model's."""
    weight_store: str = ""
    """The folder of the file behind that descriptor; empty where it is memory."""
    pipeline_parallel: int = 1
    """How many stages the layers are divided among, each in processes of its own."""
    tensor_parallel: int = 1
    """How many processes share the columns of a stage's products."""
    attached: tuple[tuple[str, str], ...] = ()
    """Functions, as `module:name`, that extend the built model, each with its argument."""
    rank: int = 0
    """Which of these processes this is; rank 0 starts the others."""
    rendezvous: str = ""
    """A file by which torch's ranks find each other."""
    group_descriptor: int = -1
    """The descriptor of the memory in which ranks meet, which rank 0 owns."""
    rank_weights_descriptors: tuple[int, ...] = ()
    """Descriptors of memory for the packed weights of ranks 1, 2, ..., likewise the parent's."""
    loads_behind: bool = False
    """Whether loading lets other processes go first: a spare, or a model beside others."""
    measures: bool = True
    """Whether steps and memory are measured; one that succeeds another only warms up."""
    step_costs: tuple[tuple[StepLoad, float], ...] = ()
    """Steps that an earlier process has measured, with their milliseconds."""
    roofline: Roofline | None = None
    """The machine's rates as measured."""
