"""Whose suites are run: how, on which model's names, and what is private to each peer."""

import json
import os
import re
import subprocess
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
RUN_S = 1800


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case of a suite, and how it went."""

    name: str
    outcome: str
    """passed, failed or skipped."""
    words: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """Values that a suite is run with against a server."""

    folder: str
    suite: str
    url: str
    program: str
    """The Python that has its packages; or the program that runs it."""


Runner = Callable[[SuiteRun], list[CaseResult]]


@dataclass(frozen=True, slots=True)
class PeerProject:
    """Another project's tests, in a folder of their own."""

    name: str
    variable: str
    """Name of the environment variable that has its folder."""
    run: Runner
    suites: Mapping[str, Sequence[str]]
    """Each, and the flags of the server that it needs."""
    models: Sequence[str] = field(default=())
    """Names that its tests have for the model."""
    program: Literal["python", "bun"] = "python"
    """Runs the tests."""
    needs_ends: bool = False
    """Whether a text has to end by itself: then the model is the agents', of random weights."""


def with_pytest(
    run: SuiteRun, more: Sequence[str], environment: Mapping[str, str]
) -> list[CaseResult]:
    """Run a file of tests with pytest; returns its cases, by names without their folder."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [run.program, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
        ended = subprocess.run(
            [*command, f"--junitxml={report}", f"{run.suite}.py"],
            cwd=run.folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if not report.exists():
            return [CaseResult("pytest", "failed", (ended.stdout + ended.stderr)[-2000:])]
        return junit_cases(report.read_text())


def junit_cases(report: str) -> list[CaseResult]:
    """Return the cases of a report in JUnit's form."""
    found: list[CaseResult] = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        marks = [mark for mark in case if mark.tag in ("failure", "error", "skipped")]
        kinds = {"skipped" if mark.tag == "skipped" else "failed" for mark in marks}
        words = " ".join(marks[0].get("message", "").split()) if marks else ""
        outcome = "failed" if "failed" in kinds else "skipped" if kinds else "passed"
        found.append(CaseResult(case.get("name", ""), outcome, words[:300]))
    return found


def llama_cpp(run: SuiteRun) -> list[CaseResult]:
    """Run one of llama.cpp's files, which take a server that runs by `DEBUG_EXTERNAL`."""
    port = run.url.rpartition(":")[2]
    return with_pytest(run, (), {"DEBUG_EXTERNAL": "1", "PORT": port})


def vllm(run: SuiteRun) -> list[CaseResult]:
    """Run one of vLLM's files; a plugin stands in for vLLM itself."""
    more = (
        "-p",
        "vllm_stand_in",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "--confcutdir",
        "tests/entrypoints",
    )
    path = os.pathsep.join((str(HERE / "stand_ins"), "."))
    return with_pytest(run, more, {"PEER_URL": run.url, "PYTHONPATH": path})


def open_responses(run: SuiteRun) -> list[CaseResult]:
    """Run Open Responses' compliance tests, which print what they found as JSON."""
    script = ["run", f"{run.suite}.ts", "--json", "--base-url", f"{run.url}/v1"]
    ended = subprocess.run(
        [run.program, *script, "--api-key", "none", "--model", "default"],
        cwd=run.folder,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    try:
        results = json.loads(ended.stdout)["results"]
    except (ValueError, KeyError):
        return [CaseResult("runner", "failed", (ended.stdout + ended.stderr)[-2000:])]
    return [
        CaseResult(each["id"], each["status"], "; ".join(each.get("errors") or ())[:300])
        for each in results
    ]


PEERS = (
    PeerProject(
        "llama.cpp",
        "LLAMA_CPP_TESTS",
        llama_cpp,
        {
            "unit/test_chat_completion": (),
            "unit/test_compat_anthropic": (),
            "unit/test_compat_oai_responses": (),
            "unit/test_tokenize": (),
            "unit/test_rerank": ("--rerank", "yes-no"),
        },
        ("gpt-3.5-turbo-instruct", "gpt-4.1", "codellama70b", "test", "claude-test"),
    ),
    PeerProject(
        "vllm",
        "VLLM_TESTS",
        vllm,
        {
            f"tests/entrypoints/openai/{name}": ()
            for name in (
                "chat_completion/test_completion_with_function_calling",
                "responses/test_function_call",
                "completion/test_completion",
                "test_return_token_ids",
            )
        },
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B", "Qwen/Qwen2.5-1.5B-Instruct"),
    ),
    PeerProject(
        "open-responses",
        "OPEN_RESPONSES_TESTS",
        open_responses,
        {"bin/compliance-test": ()},
        ("default",),
        "bun",
        needs_ends=True,  # the default model counts "from 1 to 3" for thousands of tokens
    ),
)


def private_table() -> dict[str, dict[str, str]]:
    """Return for each peer the cases that are its own affair, and why; by patterns of names."""
    return tomllib.loads((HERE / "private_cases.toml").read_text())


def of_suite(rows: Mapping[str, str], suite: str) -> dict[str, str]:
    """Return a peer's rows that are of one suite: those that name its file, or none."""
    stem = suite.rpartition("/")[2]
    prefixed = {pattern: pattern.rpartition("::") for pattern in rows}
    return {
        case: rows[pattern] for pattern, (file, _, case) in prefixed.items() if file in ("", stem)
    }


def faults(found: Sequence[CaseResult], private: Mapping[str, str]) -> list[str]:
    """Return a line for each case that fails and is not private, or is private and passes."""
    lines: list[str] = []
    for case in found:
        is_private = any(covers(pattern, case.name) for pattern in private)
        if case.outcome == "failed" and not is_private:
            lines.append(f"{case.name} fails: {case.words}")
        if case.outcome == "passed" and is_private:
            lines.append(f"{case.name} passes, and is listed as private")
    return lines


def covers(pattern: str, name: str) -> bool:
    """Whether a row is of a case: a star is anything, a test without brackets all its cases."""
    words = re.escape(pattern).replace(r"\*", ".*")
    return re.fullmatch(words + r"(\[.*\])?", name, re.DOTALL) is not None
