"""Where a setting comes from, and what is refused before anything starts."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftwerk.__main__ import main
from draftwerk.api.cli.arguments import parser, settings_of
from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly.memory_demand import head_bytes
from draftwerk.assembly.memory_room import auto_kv_bytes
from draftwerk.assembly.plan import plan
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from tests.support.cpu_pace import as_here


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "draftwerk.toml"
    file.write_text('port = 1\nhost = "::1"\nkv-memory = "1GiB"\nexact = true\n')
    found = load({"port": "3"}, {"DRAFTWERK_PORT": "2", "DRAFTWERK_HOST": "localhost"}, file)
    assert (found.port, found.host, found.kv_memory, found.exact) == (3, "localhost", "1GiB", True)
    assert found.drain_s == Settings().drain_s


def test_lists_come_from_repeated_flags_and_from_commas() -> None:
    assert load({"api_key": ["a", "b:c"]}, {}).api_key == ("a", "b:c")
    assert load({}, {"DRAFTWERK_API_KEY": "a,b"}).api_key == ("a", "b")
    words = ["serve", "--served-model-name", "a", "--served-model-name", "b/c"]
    assert vars(parser().parse_args(words))["served_model_name"] == ["a", "b/c"]


def test_switches_come_from_words() -> None:
    assert load({}, {"DRAFTWERK_EXACT": "true"}).exact is True
    assert load({}, {"DRAFTWERK_EXACT": "0"}).exact is False


@pytest.mark.parametrize(
    ("environment", "text", "word"),
    [
        ({"DRAFTWERK_PROT": "1"}, "", "prot"),
        ({"DRAFTWERK_PORT": "many"}, "", "port"),
        ({"DRAFTWERK_DTYPE": "fp99"}, "", "dtype"),
        ({"DRAFTWERK_KV_MEMORY": "much"}, "", "kv_memory"),
        ({"DRAFTWERK_HOST": "0.0.0.0"}, "", "--api-key"),
        ({}, "prot = 1", "prot"),
        ({}, "port = [", "TOML"),
        ({}, 'port = "x"', "port"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    tmp_path: Path, environment: dict[str, str], text: str, word: str
) -> None:
    file = tmp_path / "draftwerk.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=word):
        load({}, environment, file)


def test_a_public_address_needs_a_key_or_a_word() -> None:
    assert load({"host": "0.0.0.0", "insecure": True}, {}).insecure
    assert load({"host": "0.0.0.0", "api_key": ["k"]}, {}).api_key


@pytest.mark.parametrize(
    ("text", "count"),
    [("2GiB", 2 * 2**30), ("512M", 2**29), ("1.5 KB", 1536), ("7", 7), ("3TiB", 3 * 2**40)],
)
def test_sizes_are_powers_of_1024(text: str, count: int) -> None:
    assert bytes_of(text) == count


def test_every_setting_has_a_flag_and_a_description() -> None:
    line = ["serve", "a-model", "--draft", "b", "--exact", "--api-key", "x", "--api-key", "y"]
    parsed = vars(parser().parse_args(line))
    del parsed["command"]
    found = settings_of(parsed)
    assert (found.model, found.api_key, found.exact) == ("a-model", ("x", "y"), True)


def test_the_command_line_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "99999"]) == 2
    assert "`port` must be an integer from 0 to 65535" in capsys.readouterr().err


def test_help_is_quick_and_does_not_import_the_model() -> None:
    code = (
        "import sys, draftwerk.__main__ as m\n"
        "try: m.main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'starlette', 'numpy'} & set(sys.modules), 'too much imported'"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"--kv-memory" in done.stdout
    after = os.times()
    spent_s = after.children_user + after.children_system
    spent_s -= before.children_user + before.children_system
    assert spent_s < as_here(1.0)  # it is 0.1 s, however many share the processor


@dataclass(frozen=True)
class TinyCard:
    """What the plan needs of a model."""

    vocab_size: int
    kv_heads_per_token: int
    head_size: int
    context_max: int = 512
    stored_format: str = "bf16"
    name: str = "tiny"
    loading: int = 0
    state_bytes: int = 0
    draft_head_bytes: int = 0
    window: int = 0
    kept: int = 0
    window_heads: tuple[int, int] = (0, 0)
    other_heads: tuple[int, int] = (0, 0)

    def loading_bytes(self, dtype: str) -> int:
        return self.loading

    def packed_bytes(self, dtype: str) -> int:
        return self.loading

    def remedy(self, free: int) -> str:
        return "a smaller one would fit"


TINY = TinyCard(vocab_size=9, kv_heads_per_token=2, head_size=8)
RECURRENT = replace(TINY, kv_heads_per_token=4, state_bytes=10_000)
"""A token of it has 64 bytes of keys and values, and a state 10,000."""


def test_the_format_is_the_weights_own_unless_one_is_asked_for() -> None:
    target, draft = replace(TINY, stored_format="int4"), replace(TINY, stored_format="int8")
    planned = plan(Settings(draft="x"), target, draft)
    assert planned.dtype == planned.target_options.dtype == "int4"
    assert planned.target_options.draft and planned.target_options.draft.dtype == "int8"
    planned = plan(Settings(draft="x", dtype="bf16"), target, draft)
    assert planned.dtype == planned.target_options.dtype == "bf16"
    assert planned.target_options.draft and planned.target_options.draft.dtype == "bf16"


def test_the_cache_takes_a_share_of_what_the_weights_leave() -> None:
    gib = 2**30
    assert auto_kv_bytes(10 * gib, 2 * gib, 100 * gib) == 6 * gib
    assert auto_kv_bytes(10 * gib, 2 * gib, 2**20) == 64 * 2**20  # all rows' contexts fit
    with pytest.raises(ConfigError, match="kv_memory auto: 1024 MiB of memory are free"):
        auto_kv_bytes(gib, gib, gib)


def test_a_model_that_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(ConfigError, match="tiny takes 1152921504"):
        plan(Settings(device="cpu"), replace(TINY, loading=2**60), None)


def test_a_cache_of_automatic_size_is_planned() -> None:
    planned = plan(load({"kv_memory": "auto", "device": "cpu"}, {}), TINY, None)
    assert planned.block_count == 64 * 512 // planned.block_size


def test_pages_take_the_memory_of_their_format() -> None:
    found = {kind: head_bytes(128, "bf16", kind) for kind in ("auto", "int8", "fp8")}
    assert found == {"auto": 256, "int8": 132, "fp8": 128}
    assert head_bytes(128, "fp32", "auto") == 512


def test_recurrent_states_have_half_of_the_memory() -> None:
    planned = plan(Settings(kv_memory="1MiB"), RECURRENT, None, memory=2**40)
    states = planned.states
    assert states.count == 2**19 // 10_000 == planned.target_options.state_slots
    assert planned.block_count == (2**20 - states.count * 10_000) // (64 * 16)
    assert planned.target_page_bytes == planned.block_count * 64 * 16 + states.count * 10_000
    # The keys and values between two snapshots take four times as much as one.
    assert states.interval == 4 * (10_000 // (64 * 16)) * 16
    assert plan(Settings(), TINY, None).states.count == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"draft": "x"}, "draft: tiny has recurrent layers"),
        ({"kv_memory": "70000"}, "a text of tiny has 4 recurrent states of 0 MiB"),
    ],
)
def test_what_recurrent_layers_do_not_go_together_with_is_refused(settings, reason) -> None:
    draft = TINY if "draft" in settings else None
    with pytest.raises(ConfigError, match=reason):
        plan(Settings(**settings), RECURRENT, draft, memory=2**40)


def test_a_recurrent_model_does_not_draft() -> None:
    with pytest.raises(ConfigError, match="draft: tiny has recurrent layers: it cannot draft yet"):
        plan(Settings(draft="x"), TINY, RECURRENT, memory=2**40)


def test_a_key_that_stands_for_one_of_your_own_is_none() -> None:
    for key in ("REPLACE-ME", "alice:REPLACE-ME"):
        with pytest.raises(ConfigError, match="REPLACE-ME"):
            load({"api_key": (key,)}, {})
