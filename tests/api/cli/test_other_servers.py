"""Every flag of other servers is known by name, in families that newer versions add to."""

from pathlib import Path

import pytest

from draftwerk.api.cli.arguments import parser
from draftwerk.api.cli.elsewhere import SAME, hint_for_flag, is_elsewhere, translated
from tests.api.cli.test_elsewhere import refusal_of

FLAGS = Path(__file__).with_name("flags_of_others.txt")
OBEYED = {
    "serve a/b --hostname ::1": {"host": "::1"},
    "serve a/b --shutdown-timeout 5": {"drain_s": "5"},
    "serve a/b --prometheus-port 9100": {"metrics_port": "9100"},
    "llama-server -m x.gguf": {"command": "serve", "model": ["x.gguf"]},
    "delete a/b": {"command": "rm"},
}
ANSWERED = {
    "--kv-offloading-size 4": "--kv-store DIR",
    "--mamba-cache-dtype auto": "nothing of the kind",
    "--linear-backend x": "--attention NAME",
    "--lora-dtype auto": "--lora NAME=DIR",
    "--reasoning-config {}": "chat template's own marks",
    "--quantization-config {}": "--dtype",
    "--kv-cache-dtype-skip-layers 1": "--kv-dtype",
    "--model-impl transformers": "--backend",
    "--spec-method ngram": "--speculate",
    "--spec-ngram-map-k-size-n 3": "--speculate",
    "--lookup-cache-static f": "--speculate",
    "-cmoed": "--device cpu",
    "--device-ids 0": "--device cuda",
    "--nnodes 2": "--replicas N",
    "--data-parallel-rpc-port 1": "docs/cluster.md",
    "--otlp-traces-endpoint x": "/metrics",
    "--cudagraph-metrics": "nothing of the kind",
    "--mm-processor-kwargs {}": "--images",
    "--mmproj x.gguf": "--images",
    "--image-min-tokens 5": "--images",
    "--logprobs-mode raw": "in its body",
    "--dry-base 1.75": "in its body",
    "--grammar-file g": "response_format",
    "--yarn-attn-factor 1": "a model's files",
    "--kv-unified": "--kv-memory",
    "--log-colors on": "--log-format",
    "--cors-origins a,b": "once for each",
    "--ui-config {}": "the page",
    "--watchdog-timeout 5": "--idle-s",
    "--sleep-mode-backend x": "--keep-alive",
    "--enable-fault-tolerance": "--spare on",
    "--worker-cls x": "docs/extending.md",
    "--payload-limit 5": "--body-max",
    "--huggingface-hub-cache d": "HF_HUB_CACHE",
    "--tool-server demo": "clients run them",
    "--safetensors-load-strategy lazy": "--weight-store",
    "--cache-list": "draftwerk models",
    "--max-log-len 5": "--log-prompts",
}


@pytest.mark.parametrize("line", OBEYED)
def test_what_means_the_same_is_obeyed(line: str) -> None:
    parsed = vars(parser().parse_args(translated(line.split())))
    assert OBEYED[line].items() <= parsed.items()


@pytest.mark.parametrize("line", ANSWERED)
def test_what_means_something_else_is_answered(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refusal_of(["serve", *line.split()], capsys)
    assert ANSWERED[line] in text and "did you mean" not in text


def test_no_flag_of_the_others_is_taken_for_a_mistake() -> None:
    """But for those that we have too."""
    ours = parser().commands()["serve"]._option_string_actions
    lines = FLAGS.read_text(encoding="utf-8").splitlines()
    flags = {flag for line in lines if not line.startswith("#") for flag in line.split()} - {*ours}
    assert len(flags) > 700
    lost = [flag for flag in flags if not is_elsewhere(flag)]
    asked = [flag for flag in flags if flag not in SAME and "did you" in hint_for_flag(flag, ours)]
    assert (sorted(lost), sorted(asked)) == ([], [])
