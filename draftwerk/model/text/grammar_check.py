"""Checks grammars in a process of its own: one that explodes costs that process and nothing else.

    python -m draftwerk.model.text.grammar_check DIRECTORY

says that it is ready, reads a question a line, as JSON, and answers each with what is wrong with
the grammar, "" if nothing. The library bounds most of its work, but not that of every schema.
"""

import os
import select
import signal
import subprocess
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np

from draftwerk.machine.child_python import OWN_SESSION, child_environment, python_command
from draftwerk.model.text.grammar import BadGrammar, Grammars, grammars_of
from draftwerk.speculative.sampling import Grammar

CPU_S = 0.5
"""A model process compiles the grammar too, and every other request waits for it meanwhile."""
WALL_S = 4.0
"""For the same on a machine that is busy; a request waits for both tries."""
TRIES = 2
START_S = 60.0
"""For a process to be ready."""
READY = b"ready\n"
CHECKED_MAX = 256
TRIAL_TOKENS = 8
STOPS = (0,)
"""Which token ends a text makes no difference to what is wrong with a grammar."""
TOO_LONG = "it takes too long to compile"
Question = tuple[Grammar, tuple[int, ...]]
"""A grammar, and the tokens that its text begins with."""
OWN_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""How a fault of the library ends the process."""


class CheckerLost(OSError):
    """The process was killed by others, or did not answer: that says nothing about the grammar."""


class GrammarChecker:
    """The way to the process: begun when first needed, and again after a grammar has ended it.

    Once one is ready, another gets ready too: no request waits for a start where one is lost.
    """

    def __init__(self, directory: Path, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self._command = python_command(__name__, str(directory), str(cpu_s))
        self._wall_s = wall_s
        self._one_at_a_time = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._spare: subprocess.Popen[bytes] | None = None
        self._closes = dict[int, Callable[[], object]]()
        """How each process is ended, by its id."""
        self._is_ready = False
        self._checked: OrderedDict[bytes, str] = OrderedDict()

    def check(self, grammar: Grammar, written: tuple[int, ...] = ()) -> None:
        """Raise BadGrammar for a grammar that no text can be generated under that begins with the
        tokens `written`.

        Raises OSError where that cannot be told now.
        """
        key = sha256(f"{written} {grammar.kind} {grammar.text}".encode()).digest()
        with self._one_at_a_time:
            found = self._checked.get(key)
            if found is None:
                found, is_final = self._ask((grammar, written))
                if is_final:
                    self._checked[key] = found
                if len(self._checked) > CHECKED_MAX:
                    self._checked.popitem(last=False)
        if found:
            raise BadGrammar(f"the grammar cannot be followed: {found}")

    def _ask(self, question: Question) -> tuple[str, bool]:
        """Return what is wrong, and whether it will be again; raises CheckerLost."""
        if self._process is not None and self._process.poll() is not None:
            self._replace()  # it ended while nobody asked
        ending = 0
        for _ in range(TRIES):
            if answer := self._answer(question):
                return msgspec.json.decode(answer, type=str), True
            ending = self._replace()
            if ending == -signal.SIGPROF:  # its own clock: only the grammar's work sets it off
                return TOO_LONG, True
        if ending > 0 or -ending in OWN_CRASHES:
            return "it cannot be compiled", False
        raise CheckerLost("the process that checks grammars was lost")

    def _answer(self, question: Question) -> bytes | None:
        """Return the process's line about a grammar; empty or None where there is none."""
        process = self._process or self._begin()
        assert process.stdin is not None
        self._is_ready = self._is_ready or _read(process, START_S) == READY
        if not self._is_ready:
            return None
        self._spare = self._spare or self._started()
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(question) + b"\n")
            process.stdin.flush()
        return _read(process, self._wall_s)

    def _replace(self) -> int:
        """Begin another process, which gets ready meanwhile; returns how the one before ended."""
        assert self._process is not None
        process, self._process = self._process, None
        self._closes.pop(process.pid)()
        self._begin()
        return process.returncode

    def _begin(self) -> subprocess.Popen[bytes]:
        """Take the spare, or begin a process where that has ended too."""
        process, self._spare = self._spare, None
        if process is not None and process.poll() is not None:
            self._closes.pop(process.pid)()
            process = None
        self._process, self._is_ready = process or self._started(), False
        return self._process

    def _started(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=None,
            env=child_environment(),
            start_new_session=OWN_SESSION,
        )
        self._closes[process.pid] = weakref.finalize(self, _end, process)
        return process


def _read(process: subprocess.Popen[bytes], limit_s: float) -> bytes | None:
    """Return the next line, empty where the process has ended; None if none comes in time."""
    assert process.stdout is not None
    poll = select.poll()  # `select` itself takes no descriptor above 1023
    poll.register(process.stdout, select.POLLIN)
    return process.stdout.readline() if poll.poll(1000 * limit_s) else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process if it has not ended by itself."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1)
    process.kill()
    process.communicate()


def main(directory: str, cpu_s: str) -> None:
    """Answer until the input ends, as it does with the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    grammars, decoder = grammars_of(Path(directory), 0, STOPS), msgspec.json.Decoder(Question)
    assert grammars is not None
    out = sys.stdout.fileno()  # unbuffered: nothing is left to write to a server that has gone
    os.write(out, READY)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, float(cpu_s))  # whose signal ends the process
        answer = fault(grammars, *decoder.decode(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(out, msgspec.json.encode(answer) + b"\n")


def fault(grammars: Grammars, grammar: Grammar, written: tuple[int, ...] = ()) -> str:
    """Compile a grammar and follow it for a few tokens; return what is wrong with it."""
    try:
        matcher = grammars.matcher(grammar, STOPS)
        try:
            matcher.extend(written)
        except BadGrammar:
            return "the half-written reply is outside it"
        text: list[int] = []
        for _ in range(TRIAL_TOKENS):
            bits = np.unpackbits(matcher.allowed(text).view(np.uint8), bitorder="little")
            if bits[STOPS[0]]:
                break
            text.append(int(bits.argmax()))
    except BadGrammar as error:
        return str(error)
    return ""


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(*sys.argv[1:])
