"""`draftwerk chat` and `draftwerk doctor`."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftwerk.api.cli import chat
from draftwerk.api.cli.chat import COLOURS, ChatSession, command, reason, speed
from draftwerk.api.shared.config import Settings, load
from draftwerk.assembly import doctor
from draftwerk.assembly.round_limits import MeasuredModel
from draftwerk.machine import threads
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.scheduler import RoundLimits
from tests.api.conftest import Served, serving
from tests.api.support.fake_engine import FakeEngine, whole_text

ROOT = Path(__file__).parents[3]


async def draftwerk(*words: str | bytes, typed: str | bytes = "") -> tuple[int | None, str, str]:
    """Run the command; returns the exit code, what was printed, and what was complained about."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "draftwerk", *words),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    raw = typed.encode() if isinstance(typed, str) else typed
    output, complaints = await child.communicate(raw)
    return child.returncode, output.decode(), complaints.decode()


async def test_one_question_is_answered_with_its_speed(served: Served) -> None:
    code, output, speed_line = await draftwerk(
        "chat", "Hello", "--url", served.url, "--seed", "5", "--system", "Be brief."
    )
    assert code == 0
    prompt, options = served.engine.submitted[-1]
    assert output == whole_text(prompt, options) + "\n"
    assert "tok/s" in speed_line
    assert "tokens per step" in speed_line
    assert "seed 5" in speed_line


async def test_a_conversation_keeps_its_turns_and_starts_over(served: Served) -> None:
    typed = "Hello\nMore\n/new\nAfresh\n/quit\nnever\n"
    code, _, _ = await draftwerk("chat", "--url", served.url + "/v1/", typed=typed)
    assert code == 0
    lengths = [len(prompt.messages) for prompt, _ in served.engine.submitted]  # type: ignore[union-attr]
    assert lengths == [1, 3, 1]


async def test_bytes_that_are_no_text_are_sent_as_marks(served: Served) -> None:
    code, _, complaints = await draftwerk(
        "chat", "--url", served.url, b"--system=\xff", typed=b"a\xff\nb\n"
    )
    assert code == 0, complaints
    assert [each.content for each in served.talk.messages][:2] == ["?", "a\ufffd"]


async def test_a_new_conversation_keeps_the_system_message(served: Served) -> None:
    typed = "Hello\n/new\nAfresh\n"
    await draftwerk("chat", "--url", served.url, "--system", "Be brief.", typed=typed)
    assert [each.content for each in served.talk.messages] == ["Be brief.", "Afresh"]


async def test_one_question_may_start_with_a_slash(served: Served) -> None:
    code, output, _ = await draftwerk("chat", "/etc/hosts?", "--url", served.url)
    assert (code, output) == (0, whole_text(*served.engine.submitted[-1]) + "\n")


async def test_errors_are_one_sentence_in_the_servers_words() -> None:
    async with serving(FakeEngine(), api_key=["k"]) as served:
        code, _, complaint = await draftwerk("chat", "Hello", "--url", served.url)
        assert (code, complaint) == (1, "draftwerk: An API key is required.\n")
        code, _, _ = await draftwerk("chat", "Hello", "--url", served.url, "--api-key", "k")
        assert code == 0
    code, _, complaint = await draftwerk("chat", "Hello", "--url", served.url)
    assert code == 1
    assert complaint.startswith(f"draftwerk: no answer from {served.url}")
    code, _, complaint = await draftwerk("chat", "Hello", "--url", "nonsense")
    assert (code, "no URL" in complaint) == (2, True)


async def test_without_speculation_is_a_switch(served: Served) -> None:
    await draftwerk("chat", "Hello", "--url", served.url, "--no-speculation")
    assert served.options.speculation.enabled is False


def test_a_speed_line_has_what_is_measured() -> None:
    assert speed(None, 1.25) == "1.2 s"
    metrics = {
        "time_to_first_token_ms": 12.3,
        "tokens_per_second": 100.0,
        "speculative_decoding": None,
        "seed": 4,
    }
    assert speed(metrics, 1) == "first token 12 ms · 100.0 tok/s · seed 4"


def test_an_answer_that_is_no_error_body_still_makes_a_sentence() -> None:
    assert reason(b"<html>", 502) == "the server answered 502"


def test_commands_change_the_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    conversation = ChatSession("http://x", messages=[{"role": "user", "content": "x"}])
    assert command(conversation, "/seed ²")
    assert command(conversation, "/seed 7")
    assert conversation.fields == {"seed": 7}
    assert command(conversation, "/new")
    assert conversation.messages == []
    assert command(conversation, "/what")
    assert "/new" in capsys.readouterr().out
    assert not command(conversation, "/bye") and not command(conversation, "/quit")


async def test_an_answer_without_end_is_cut_and_said_to_be(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chat, "TOKENS_MAX", 3)
    for fields, cut in (({}, "cut after 3 tokens"), ({"max_tokens": 2}, "cut after 2 tokens")):
        session = ChatSession(served.url, fields={"seed": 1, **fields})
        assert cut in await asyncio.to_thread(session.ask, "Hello")
    assert capsys.readouterr().out.strip()


def test_the_legend_names_every_source_in_its_colour() -> None:
    assert all(f"\x1b[{code}m{name}" in chat.legend() for name, code in COLOURS.items())


def kernels() -> str:
    return "avx2, ready-made"


def test_the_doctor_looks_at_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.doctor(load({"port": 0}, {}), kernels) in (0, 1)
    said = capsys.readouterr().out
    assert said.startswith(("ready to serve: the built-in model · avx2, ready-made", "not ready"))
    for subject in ("python", "torch", "model", "processor", "memory", "gpu", "cache"):
        assert subject in said
    assert "[  ok  ] native kernels: avx2, ready-made" in said


def test_the_doctor_names_damaged_files(capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> Iterator[tuple[Path, bool]]:
        yield from ((Path("/c/one"), False), (Path("/c/two"), True), (Path("/c/three"), False))

    doctor.doctor(load({"port": 0}, {}), kernels, files=files)
    said = capsys.readouterr().out
    assert "[ slow ] cached file: /c/two is damaged; it is made anew when it is needed" in said
    assert "[  ok  ] cached files: 2 read, and whole" in said


def test_the_doctor_says_that_kernels_cannot_run_or_be_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> str:
        raise ConfigError("DRAFTWERK_ISA=neon: this CPU is x86_64, not aarch64")

    doctor.doctor(load({"port": 0}, {}), lambda: "none: no C++ compiler")
    assert doctor.doctor(load({"port": 0}, {}), refuse) == 1
    said = capsys.readouterr().out
    assert "[ slow ] native kernels: none: no C++ compiler" in said
    assert "[ FAIL ] native kernels: DRAFTWERK_ISA=neon: this CPU is x86_64" in said
    assert "not ready to serve: native kernels: DRAFTWERK_ISA=neon" in said


@pytest.mark.parametrize(
    ("cpus", "quota", "words"),
    [(1, None, "1 CPU"), (8, 16, "8 CPUs"), (64, 2, "2 CPUs of 64, by the quota")],
)
def test_the_doctor_names_a_quota(
    monkeypatch: pytest.MonkeyPatch, cpus: int, quota: int | None, words: str
) -> None:
    for module in (doctor, threads):
        monkeypatch.setattr(module, "affinity", lambda: cpus)
        monkeypatch.setattr(module, "quota_cpus", lambda: quota)
    (found,) = (
        each
        for each in doctor.findings(load({"port": 0}, {}), kernels)
        if each.subject == "processor"
    )
    assert found.words.endswith(f", {words}")


def test_the_doctor_finds_a_taken_port() -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        found = list(doctor.findings(load({"port": other.getsockname()[1]}, {}), kernels))
    assert found[-1].state == "bad", "taken, and not by a server of ours"


def test_the_doctor_prints_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Ready(
        device="cpu",
        attention="native",
        exact=True,
        step_costs=(
            *((StepLoad(n, n), ms) for n, ms in ((1, 8.0), (8, 10.0), (16, 12.0))),
            (StepLoad(1, 1, 4096, 4096), 20.0),
        ),
        weight_bytes=269_000_000,
        weight_ms=6.7,
    )
    measured = MeasuredModel(ready, RoundLimits(rows_max=50, pause_s=0.05), 12_800)
    assert doctor.doctor(load({"port": 0}, {}), kernels, lambda _: measured) == 0
    said = capsys.readouterr().out
    assert "269 MB of weights, read at 40 GB/s: no step is under 6.7 ms" in said
    assert "1: 8.0, 8: 10.0, 16: 12.0" in said
    assert "125 tokens/s for one reader, 1333 for 16 at once" in said
    assert "8 tokens in a step cost 1.2 of one: where guesses are right, up to 6.4" in said
    assert "texts at once: 50: the cache holds 12800" in said
    assert "tokens in a round: 256: a token costs least, within 1%, in rounds of" in said
    assert "pause of a text while prompts are read: 50 ms, or two steps" in said


def test_the_doctor_prints_why_a_model_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: Settings) -> MeasuredModel:
        raise ConfigError("no such model")

    assert doctor.doctor(load({"port": 0}, {}), kernels, refuse) == 1
    assert "FAIL ] model: no such model" in capsys.readouterr().out
