"""Whether the model's state behind a prompt tells how long its answer will be.

    python -m benchmarks.prompts.length_probe answer prompts.jsonl ANSWERED.jsonl [--count 40]
    python -m benchmarks.prompts.length_probe fit ANSWERED.jsonl [--most 80]

`answer` has the default model answer `--count` prompts of each category, greedily and with at most
`--tokens` tokens, and writes a line for each: its category, its length, its answer's length, and
two states of the last layer, normalised: the last token's and the mean of all. It goes on where an
earlier call has ended. `fit` prints Kendall's tau-b between predicted and true lengths of answers
on prompts that were not fitted, each a tenth of all, for

    prompt's length     the prompt's length itself
    category's mean     the mean of log length of the other prompts of its category
    last, mean state    ridge regression of log length on a state
    both                on both, and on the prompt's log length

With `--most`, so many prompts are fitted at a time: what more of them would bring. The penalty is
chosen by folds within what is fitted. `95 %` is by bootstrap over prompts; `within` is the tau in
each category, averaged: what is known beyond a prompt's kind; `new kind` is that where no prompt of
the category was fitted.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from benchmarks.support.prompts import by_category
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.python_api.llm import LLM
from draftwerk.python_api.sampling_params import SamplingParams
from draftwerk.speculative.protocol.rounds import NO_DRAFT

GOAL = 0.4
FOLDS, INNER_FOLDS = 10, 5
PENALTIES = (0.01, 0.1, 1.0, 10.0)
"""Of the ridge, for each feature and prompt: features have a variance of 1."""
SAMPLES = 1000
AT_ONCE = 32
CHUNK = 128
BLOCK_SIZE, CONTEXT = 16, 4096
Predict = Callable[[Tensor, Tensor], Tensor]
"""From the prompts that may be fitted and those that are asked for, predictions of the latter."""


class Answered(msgspec.Struct, frozen=True):
    """A prompt, the length of its answer in tokens, and two states [H] behind it."""

    prompt: str
    category: str
    prompt_tokens: int
    answer_tokens: int
    is_cut: bool
    last: list[float]
    mean: list[float]


# --- answers --------------------------------------------------------------------------------------


class Prober:
    """The default model's last hidden states, by the kernels that serve it."""

    def __init__(self, dtype: str) -> None:
        model = load(None, None)
        self.forward = NativeForward(model.config, model.weights, dtype, Pool())
        width, page_dtype = self.forward.page_width, self.forward.page_dtype
        self.blocks = tuple(range(CONTEXT // BLOCK_SIZE))
        self.pages = allocate(
            model.config, len(self.blocks), BLOCK_SIZE, page_dtype, torch.device("cpu"), width
        )

    def states(self, tokens: list[int]) -> tuple[list[float], list[float]]:
        """Return the last token's state and the mean of all."""
        total, last = torch.zeros(self.forward.hidden_size), torch.zeros(0)
        for start in range(0, len(tokens), CHUNK):
            builder = BatchBuilder(BLOCK_SIZE)
            builder.add(tokens[start : start + CHUNK], start, self.blocks, NO_DRAFT, samples=False)
            builder.outputs.extend(range(len(builder.tokens)))
            self.forward(builder.batch(torch.device("cpu")), self.pages)
            assert self.forward.states is not None
            total += self.forward.states.sum(0)
            last = self.forward.states[-1]
        return last.tolist(), (total / len(tokens)).tolist()


def answer(given: argparse.Namespace) -> None:
    """Append the prompts that are not answered yet."""
    known = {each.prompt for each in read(given.answered)} if given.answered.exists() else set()
    text = TextTokenizer(locate(None).directory)
    asked: list[tuple[str, str, list[int]]] = []
    for category, prompts in by_category(given.prompts, given.count).items():
        for prompt in dict.fromkeys(prompts):
            chat = text.render_chat([{"role": "user", "content": prompt}])
            tokens = text.encode_continuation(chat)
            if prompt not in known and len(tokens) + given.tokens <= CONTEXT:
                asked.append((category, prompt, tokens))
    prober = Prober(given.dtype)
    params = SamplingParams(temperature=0.0, max_tokens=given.tokens)
    with (
        LLM(spare="off", dtype=given.dtype) as llm,
        given.answered.open("ab") as file,
    ):
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            outputs = llm.batch([tokens for _, _, tokens in part], params)
            rows = [
                Answered(
                    prompt,
                    category,
                    len(tokens),
                    len(output.token_ids),
                    output.finish_reason == "length",
                    *prober.states(tokens),
                )
                for (category, prompt, tokens), output in zip(part, outputs, strict=True)
            ]
            file.write(msgspec.json.Encoder().encode_lines(rows))
            file.flush()
            print(f"{start + len(part)} of {len(asked)} prompts", flush=True)


def read(path: Path) -> list[Answered]:
    """Return what was answered so far."""
    return msgspec.json.Decoder(Answered).decode_lines(path.read_bytes())


# --- probes ---------------------------------------------------------------------------------------


def ridge(features: Tensor, lengths: Tensor, penalty: float, asked: Tensor) -> Tensor:
    """Return predictions [Q] for features [Q, F], fitted to features [P, F] and lengths [P]."""
    centre, spread = features.mean(0), features.std(0) + 1e-9
    known, asked = (features - centre) / spread, (asked - centre) / spread
    weight = penalty * known.shape[1] * torch.eye(len(known), dtype=known.dtype)
    dual = torch.linalg.solve(known @ known.T + weight, lengths - lengths.mean())
    return lengths.mean() + asked @ known.T @ dual


def by_ridge(features: Tensor, lengths: Tensor) -> Predict:
    """Return a probe whose penalty is the one that does best on folds of what it is fitted to."""

    def predict(known: Tensor, asked: Tensor) -> Tensor:
        def score(penalty: float) -> float:
            def inner(kept: Tensor, left_out: Tensor) -> Tensor:
                return ridge(features[kept], lengths[kept], penalty, features[left_out])

            return tau(out_of_fold(inner, known, INNER_FOLDS), lengths[known])

        return ridge(features[known], lengths[known], max(PENALTIES, key=score), features[asked])

    return predict


def by_category_mean(categories: Tensor, lengths: Tensor) -> Predict:
    """Return the baseline: the mean of each category, or of all where it has none."""

    def predict(known: Tensor, asked: Tensor) -> Tensor:
        means = []
        for each in asked:
            alike = known[categories[known] == categories[each]]
            means.append(lengths[alike if len(alike) else known].mean())
        return torch.stack(means)

    return predict


def out_of_fold(predict: Predict, members: Tensor, count: int, most: int | None = None) -> Tensor:
    """Return a prediction of each member, made from those outside of its fold, `most` of them."""
    found = torch.zeros(len(members), dtype=torch.float64)
    folds = torch.arange(len(members)) % count
    for fold in range(count):
        found[folds == fold] = predict(members[folds != fold][:most], members[folds == fold])
    return found


def out_of_category(predict: Predict, categories: Tensor) -> Tensor:
    """Return a prediction of each prompt, made from the other categories."""
    found = torch.zeros(len(categories), dtype=torch.float64)
    for each in categories.unique():
        inside = categories == each
        found[inside] = predict((~inside).nonzero()[:, 0], inside.nonzero()[:, 0])
    return found


def tau(predicted: Tensor, lengths: Tensor) -> float:
    """Return Kendall's tau-b, in which ties count for neither side; 0 where all are tied."""
    first = (predicted[:, None] - predicted).sign()
    second = (lengths[:, None] - lengths).sign()
    pairs = (first.abs().sum() * second.abs().sum()).sqrt()
    return float((first * second).sum() / pairs) if pairs else 0.0


def within(predicted: Tensor, lengths: Tensor, categories: Tensor) -> float:
    """Return the taus of the categories, averaged by how many prompts they have."""
    parts = [categories == each for each in categories.unique()]
    return sum(int(part.sum()) * tau(predicted[part], lengths[part]) for part in parts) / len(
        lengths
    )


def interval(predicted: Tensor, lengths: Tensor, dice: torch.Generator) -> tuple[float, float]:
    """Return the 95 % interval of tau by bootstrap over prompts."""
    count = len(lengths)
    taus: list[float] = []
    for _ in range(SAMPLES):
        drawn = torch.randint(count, (count,), generator=dice)
        taus.append(tau(predicted[drawn], lengths[drawn]))
    low, high = torch.tensor(taus).quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


def fit(rows: Sequence[Answered], seed: int, most: int | None) -> None:
    """Print the table."""
    dice = torch.Generator().manual_seed(seed)
    rows = [rows[at] for at in torch.randperm(len(rows), generator=dice).tolist()]
    names = sorted({row.category for row in rows})
    categories = torch.tensor([names.index(row.category) for row in rows])
    lengths = torch.tensor([row.answer_tokens for row in rows], dtype=torch.float64).log()
    prompt = torch.tensor([row.prompt_tokens for row in rows], dtype=torch.float64).log()
    last = torch.tensor([row.last for row in rows], dtype=torch.float64)
    mean = torch.tensor([row.mean for row in rows], dtype=torch.float64)
    both = torch.cat([last, mean, prompt[:, None]], 1)
    probes: dict[str, Predict] = {
        "prompt's length": lambda known, asked: prompt[asked],
        "category's mean": by_category_mean(categories, lengths),
        "last state": by_ridge(last, lengths),
        "mean state": by_ridge(mean, lengths),
        "both": by_ridge(both, lengths),
    }
    cut = sum(row.is_cut for row in rows)
    print(f"{len(rows)} prompts of {len(names)} categories; {cut} answers were cut")
    print(f"{'from':16s}   tau     95 %        within  new kind")
    every = torch.arange(len(rows))
    for name, predict in probes.items():
        found = out_of_fold(predict, every, FOLDS, most)
        low, high = interval(found, lengths, dice)
        elsewhere = within(out_of_category(predict, categories), lengths, categories)
        print(
            f"{name:16s} {tau(found, lengths):6.3f} {low:6.3f} {high:6.3f} "
            f"{within(found, lengths, categories):8.3f} {elsewhere:8.3f}",
            flush=True,
        )
    print(f"admission by a probe is asked for from a tau of {GOAL}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    answering = commands.add_parser("answer")
    answering.add_argument("prompts", type=Path)
    answering.add_argument("answered", type=Path)
    answering.add_argument("--count", type=int, default=40, help="prompts of each category")
    answering.add_argument("--tokens", type=int, default=256)
    answering.add_argument("--dtype", default="bf16")
    fitting = commands.add_parser("fit")
    fitting.add_argument("answered", type=Path)
    fitting.add_argument("--seed", type=int, default=1)
    fitting.add_argument("--most", type=int, default=None, help="prompts that are fitted")
    given = parser.parse_args()
    if given.command == "answer":
        answer(given)
    else:
        fit(read(given.answered), given.seed, given.most)


if __name__ == "__main__":
    main()
