"""The process that checks grammars, killed by others: no fault of a grammar, and not remembered."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.model.text import grammar_check
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.model.text.grammar_check import CheckerLost, GrammarChecker
from draftwerk.speculative.sampling import Grammar
from tests.support.tiny_models import save_tiny_with_text
from tests.support.waiting import DEADLINE_S


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path)
    return path


@pytest.fixture
def checker(directory: Path) -> GrammarChecker:
    made = GrammarChecker(directory, wall_s=DEADLINE_S)
    made.check(regex("first"))
    return made


def regex(pattern: str) -> Grammar:
    return Grammar("regex", pattern)


def kill(checker: GrammarChecker, what: signal.Signals = signal.SIGKILL) -> int:
    """Signal the process and return its id, once it has ended."""
    assert checker._process is not None
    checker._process.send_signal(what)
    if what is not signal.SIGSTOP:
        os.waitid(os.P_PID, checker._process.pid, os.WEXITED | os.WNOWAIT)
    return checker._process.pid


def test_the_spare_takes_over_and_another_gets_ready(checker: GrammarChecker) -> None:
    for number in range(3):
        spare = checker._spare
        assert spare is not None
        kill(checker)
        checker.check(regex(f"after {number} losses"))
        assert checker._process is spare
    lost = checker._spare
    assert lost is not None
    for process in (lost, checker._process):
        assert process is not None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    checker.check(regex("after both"))
    assert checker._process not in (lost, None)
    assert len(checker._closes) == 2, "the others were waited for"


def test_a_server_that_is_killed_before_it_is_ready_is_no_error(directory: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", grammar_check.__name__, str(directory), "4"]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=writes, stderr=subprocess.PIPE, check=False
    )
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("what", [signal.SIGTERM, signal.SIGSEGV, signal.SIGPROF])
def test_a_process_killed_while_idle_is_replaced(
    checker: GrammarChecker, what: signal.Signals
) -> None:
    killed = kill(checker, what)
    checker.check(regex("second"))
    assert checker._process is not None and checker._process.pid != killed
    with pytest.raises(BadGrammar):
        checker.check(regex("(open"))


def test_a_process_killed_with_the_question_is_asked_once_more(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    victims: list[int] = []
    answer = GrammarChecker._answer

    def asked(self: GrammarChecker, grammar: Grammar) -> bytes | None:
        if len(victims) < deaths:
            assert self._is_ready or grammar_check._read(self._process, DEADLINE_S)  # type: ignore[arg-type]
            self._is_ready = True
            victims.append(kill(self))
        return answer(self, grammar)

    monkeypatch.setattr(GrammarChecker, "_answer", asked)
    deaths = 1
    checker.check(regex("once"))
    assert len(victims) == 1
    victims.clear()
    deaths = grammar_check.TRIES
    with pytest.raises(CheckerLost):
        checker.check(regex("twice"))
    assert len(set(victims)) == grammar_check.TRIES
    checker.check(regex("twice"))  # it was not remembered


def test_a_stopped_process_is_replaced(checker: GrammarChecker) -> None:
    checker._wall_s = 0.5
    stopped = kill(checker, signal.SIGSTOP)
    for _ in range(10):  # its successor may be slow to answer on a busy machine
        try:
            checker.check(regex("second"))
            break
        except CheckerLost:
            checker._wall_s *= 2
    assert checker._process is not None and checker._process.pid != stopped
    checker.check(regex("second"))


def test_a_grammar_that_crashes_the_library_is_refused(
    checker: GrammarChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = ("-c", "import os; print('ready', flush=True); input(); os.abort()")
    checker._command = [checker._command[0], *crash]
    assert checker._spare is not None
    checker._spare.kill()
    checker._spare.wait()
    kill(checker)
    with pytest.raises(BadGrammar, match="cannot be compiled"):
        checker.check(regex("second"))
