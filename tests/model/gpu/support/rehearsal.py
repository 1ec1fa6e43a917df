"""Starts and rounds of a model on a Hopper that is not there, for tests of launches.

    python -m tests.model.gpu.support.rehearsal default:bf16 8b:fp8+fp8

A case is a model, a format, and what follows: `fp8` pages, `exact`, or `drafts`. What it compiled
is printed where all launched as a card would have it, else the fault. In a process of its own:
tests interpret kernels in theirs.
"""

import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from unittest import mock

import msgspec
import torch
from safetensors.torch import load_file

from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.draft_head.chains import LENGTH_MAX, Wanted
from draftwerk.model.draft_head.head import HEADS, DraftHead
from draftwerk.model.gpu import build, sampler
from draftwerk.model.gpu.build import FORMATS, GpuSettings, gpu_parts
from draftwerk.model.gpu.device_blocks import on_device
from draftwerk.model.gpu.kernels import attention
from draftwerk.model.process.measuring import LARGE_SIZES, WARM_UP_SIZES
from draftwerk.model.process.step_trials import verification
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Draft,
    NewSequence,
    Proposal,
    Round,
    Row,
)
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support import fake_hopper
from tests.model.gpu.support.fake_hopper import (
    LaunchFault,
    LaunchLog,
    NoProducts,
    Recorder,
    install,
)

LAYERS, VOCABULARY = 1, 32_000
BLOCKS = 1024
TREE = Draft((1, 2, 3, 4), (-1, -1, 0, 0), ("test",) * 4)
PLAIN = Sampling(temperature=0.8)
SAMPLINGS = {
    Sampling(temperature=0.0): (1, 3),
    PLAIN: (1, 3, 17, 64),
    Sampling(temperature=0.8, top_k=40, top_p=0.9): (3,),
}
"""Of trees, and by how many rows."""
CPU = torch.device("cpu")


def default_model(dtype: str) -> tuple[Checkpoint, DraftHead | None]:
    """Return the first layer of the server's own model, and its draft head.

    Where the weights may be any they are random: to dequantise a file takes longer than the rest.
    """
    _, directory = locate(None)
    config = msgspec.structs.replace(read_config(directory), layer_count=LAYERS)
    (path,) = HEADS.glob("*.safetensors")
    head = DraftHead(**load_file(path))
    if dtype != STORED:
        return random_model(config, FORMATS[dtype].dtype, CPU), head
    whole = load(None, torch.bfloat16, CPU, keeps_blocks=True)
    weights = replace(whole.weights, layers=list(islice(whole.weights.layers, LAYERS)))
    model = replace(whole, config=config, weights=weights)
    return on_device(model, torch.bfloat16, CPU), head


def shape(dtype: str, **changes: int) -> tuple[Checkpoint, None]:
    """Return a layer of the shape of Llama-3.1-8B, or of another: all have the same forms."""
    config = shape_of_8b(**{"layer_count": LAYERS, "vocab_size": VOCABULARY, **changes})
    return random_model(config, FORMATS[dtype].dtype, CPU), None


MODELS = {
    "default": default_model,
    "8b": shape,
    "tiny": lambda dtype: shape(dtype, **{**SMOKE, "context_max": 8192}),
}


def rehearse(case: str, log: LaunchLog) -> None:
    """Start a model, then have it serve rounds, in which nothing may be compiled."""
    model_name, format_words = case.split(":")
    dtype, *options = format_words.split("+")
    with NoProducts():
        model, head = MODELS[model_name](dtype)
        settings = GpuSettings(
            dtype,
            "triton",
            exact="exact" in options,
            block_count=BLOCKS,
            rows_max=64,
            kv_dtype="fp8" if "fp8" in options else "auto",
            drafts="drafts" in options,
        )
        recorder = Recorder(log)
        parts, _ = gpu_parts(model, settings, recorder, head=head)
        with log.nothing_compiled("after the start"):
            serve(parts, settings.block_size)


def serve(parts: LoadedModel, block_size: int) -> None:
    """Compute the rounds that the start measures, and those of requests."""
    runner = target_runner(parts, 8)
    for size in (*WARM_UP_SIZES, *LARGE_SIZES):
        runner.step(verification(size, block_size, runner.vocab_size))
    for proposal in proposals(block_size):
        target_runner(parts, 8).step(proposal)
    if parts.chains is not None:
        logits = torch.zeros(3, parts.vocab_size)
        for sampling in (Sampling(temperature=0.0), PLAIN):
            for rows in (1, 3):
                wanted = [
                    Wanted(SamplingRequest(row, 40, sampling), tuple(range(4)), LENGTH_MAX)
                    for row in range(rows)
                ]
                parts.chains.begin(logits, wanted)


def proposals(block_size: int) -> Iterator[Proposal]:
    """Yield rounds of trees, of chunks beside trees, and of prompts of odd lengths."""
    for sampling, counts in SAMPLINGS.items():
        for rows in counts:
            yield _proposal([(40, 41, TREE)] * rows, sampling, block_size)
    for chunk in (17, 33, 300, 700):
        yield _proposal([(40, 41, TREE), (0, chunk, NO_DRAFT)], PLAIN, block_size)
        yield _proposal([(0, chunk, NO_DRAFT), (0, 5, NO_DRAFT)], PLAIN, block_size)
    yield _proposal([(4000, 4001, TREE), (3000, 3600, NO_DRAFT)], PLAIN, block_size)


def _proposal(spans: list[tuple[int, int, Draft]], sampling: Sampling, block_size: int) -> Proposal:
    """Return a round of rows that begin and end at these positions, and their drafts."""
    blocks = count()
    rows: list[Row] = []
    for number, (start, stop, draft) in enumerate(spans):
        room = -(-(stop + len(draft.tokens)) // block_size)
        rows.append(
            Row(
                sequence_id=number,
                start=start,
                stop=stop,
                samples=True,
                draft_max=len(draft.tokens),
                blocks=tuple(next(blocks) % BLOCKS for _ in range(room)),
                new_sequence=NewSequence((1,) * stop, stop, sampling),
            )
        )
    drafts = tuple(draft for _, _, draft in spans)
    return Proposal(Round(round_id=0, pipeline_slot=0, rows=tuple(rows)), drafts)


def outcome(name: str, log: LaunchLog) -> str:
    """Return what a case compiled and launched, or what it, or a planted mistake, led to."""
    plants = PLANTS[name]() if name in PLANTS else []
    with ExitStack() as stack:
        for module, attribute, wrong in plants:
            stack.enter_context(mock.patch.object(module, attribute, wrong))
        try:
            rehearse("tiny:bf16" if plants else name, log)
            return report(name, log)
        except Exception as error:  # whatever it is, the test knows its words
            return f"{name}: {type(error).__name__}: {error}"


def renamed(kernel: Any, argument: str, name: str) -> Any:
    """Return a kernel with another name for an argument."""
    source = re.sub(rf"\b{argument}\b", name, Path(inspect.getfile(kernel.fn)).read_text("utf-8"))
    with NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(source)
    spec = spec_from_file_location("planted", file.name)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    os.unlink(file.name)
    return getattr(module, kernel.fn.__name__)


def nothing(*arguments: object) -> None:
    """Stand for what a start leaves out."""


PLANTS: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {
    "a compile in a capture": lambda: [
        (fake_hopper, "WARM_UPS", 0),
        (build, "warm_up", nothing),
    ],
    "an empty grid": lambda: [(attention, "ceil_div", lambda count, size: count // size)],
    "a form that no start compiles": lambda: [(build, "warm_up", nothing)],
    "an argument called params": lambda: [
        (build, "warm_up", nothing),
        (sampler, "keyed_kernel", renamed(sampler.keyed_kernel, "settings", "params")),
    ],
}
"""Mistakes: in which modules, of what, and what is there instead."""


def report(case: str, log: LaunchLog) -> str:
    """Return what a case compiled. Raises LaunchFault for forms that differ in nothing seen."""
    forms = Counter((form.kernel, form.constants, form.signature) for form in log.forms)
    if twice := {form for form, times in forms.items() if times > 1}:
        raise LaunchFault(f"compiled more than once for the same constants: {twice}")
    kernels = dict(Counter(form.kernel for form in log.forms))
    return f"{case}: {len(forms)} forms, {sum(log.launches.values())} launches: {kernels}"


def main() -> None:
    torch.set_num_threads(1)
    log = install()
    for case in sys.argv[1:]:
        log.clear()
        print(outcome(case, log).replace("\n", " "))


if __name__ == "__main__":
    main()
