"""The workload an option string names."""

from pathlib import Path

from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.workloads.collection import Collection, chosen
from draftwerk_tools.loadtest.workloads.oracle import CountUpward
from draftwerk_tools.loadtest.workloads.prompt import Workload
from draftwerk_tools.loadtest.workloads.prompt_files import READERS
from draftwerk_tools.loadtest.workloads.synthetic import Synthetic


def open_workload(options: LoadTestOptions) -> Workload:
    """Make or read the workload; raises ValueError for a wrong name or file."""
    kind, _, path = options.workload.partition(":")
    if kind == "count":
        return CountUpward(options.seed)
    if kind == "synthetic":
        return _synthetic(options)
    if kind not in READERS or not path:
        raise ValueError(f"no workload {options.workload!r}: see --help for the kinds")
    return _collection(options, kind, Path(path))


def _synthetic(options: LoadTestOptions) -> Synthetic:
    if options.token_ids and options.endpoint != "completions":
        raise ValueError("--token-ids needs --endpoint completions")
    return Synthetic(
        seed=options.seed,
        prompt_tokens=options.prompt_tokens,
        prompt_spread=options.prompt_spread,
        output_tokens=options.max_tokens,
        output_spread=options.output_spread,
        prefix_groups=options.prefix_groups,
        prefix_tokens=options.prefix_tokens,
        zipf=options.zipf,
        token_ids=options.token_ids,
        same_prompt=options.same_prompt,
    )


def _collection(options: LoadTestOptions, kind: str, path: Path) -> Collection:
    from_file = options.file_lengths or kind == "mooncake"
    prompts = chosen(
        READERS[kind](path),
        [name for name in options.categories.split(",") if name],
        options.turns,
        None if from_file else options.max_tokens,
    )
    in_order = options.in_order or options.replay or kind == "mooncake"
    return Collection(prompts, options.seed, in_order, options.output_spread)
