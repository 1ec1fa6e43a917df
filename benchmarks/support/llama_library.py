"""llama.cpp in this process: its library, as `npm pack @node-llama-cpp/linux-x64` brings it."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwerk.machine.threads import usable_cpus

BACKENDS = {"avx2": "haswell", "avx2-vnni": "haswell", "avx512": "skylakex"}
"""Its builds for an instruction set of ours; for others the one that it takes for this machine."""
BATCH_TOKENS = 2048


class _Parameters(ctypes.Structure):
    """Parameters that it fills in itself: more room than any release's take."""

    _fields_ = (("words", ctypes.c_uint32 * 256),)


CONTEXT_WORDS = {"n_ctx": 0, "n_batch": 1, "n_ubatch": 2, "n_seq_max": 3, "threads": (7, 8)}
EXACT_WORDS = {"flash_attn_type": 13, "type_k": 26, "type_v": 27}
"""Where `llama_context_params` has them."""


class _Batch(ctypes.Structure):
    """Mirrors `llama_batch`."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class LlamaModel:
    """A GGUF file and as many sequences, greedily decoded together."""

    def __init__(
        self,
        folder: Path,
        weights: Path,
        sequences: int,
        length: int,
        isa: str,
        is_exact: bool = False,
    ) -> None:
        """Load; `length` is of each sequence at most. Raises OSError without the library.

        Keys and values are of 16 bits, or exact, and then attention is not fused.
        """
        ggml, base = (next(folder.rglob(f"lib{name}.*so*")) for name in ("ggml", "llama"))
        backends: Any = ctypes.CDLL(str(ggml), ctypes.RTLD_GLOBAL)
        self._llama: Any = ctypes.CDLL(str(base), ctypes.RTLD_GLOBAL)
        self._log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda *_: None
        )
        self._llama.llama_log_set(self._log, None)
        if isa in BACKENDS:
            path = ggml.parent / f"libggml-cpu-{BACKENDS[isa]}.so"
            backends.ggml_backend_load(str(path).encode())
        else:
            backends.ggml_backend_load_all_from_path(str(ggml.parent).encode())
        llama = self._llama
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory"):
            getattr(llama, name).restype = ctypes.c_void_p
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(llama, name).restype = _Parameters
        llama.llama_model_get_vocab.restype = ctypes.c_void_p
        llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
        llama.llama_batch_init.restype = _Batch
        given = llama.llama_model_default_params()
        self._model = ctypes.c_void_p(
            llama.llama_model_load_from_file(str(weights).encode(), given)
        )
        if not self._model:
            raise OSError(f"llama.cpp does not load {weights}")
        given = llama.llama_context_default_params()
        words = given.words
        words[CONTEXT_WORDS["n_ctx"]] = sequences * length
        words[CONTEXT_WORDS["n_batch"]] = BATCH_TOKENS
        words[CONTEXT_WORDS["n_seq_max"]] = sequences
        for place in EXACT_WORDS.values() if is_exact else ():
            words[place] = 0
        for place in CONTEXT_WORDS["threads"]:
            words[place] = usable_cpus()
        self._context = ctypes.c_void_p(llama.llama_init_from_model(self._model, given))
        vocabulary = ctypes.c_void_p(llama.llama_model_get_vocab(self._model))
        self._tokens: int = llama.llama_vocab_n_tokens(vocabulary)
        self._batch = llama.llama_batch_init(BATCH_TOKENS, 0, 1)

    def clear(self) -> None:
        """Forget all sequences."""
        memory = ctypes.c_void_p(self._llama.llama_get_memory(self._context))
        self._llama.llama_memory_clear(memory, ctypes.c_bool(True))

    def prefill(self, prompt: list[int], sequence: int = 0) -> int:
        """Compute a prompt; returns the greedy next token."""
        entries = [(token, place, sequence) for place, token in enumerate(prompt)]
        *before, last = [
            entries[first : first + BATCH_TOKENS] for first in range(0, len(entries), BATCH_TOKENS)
        ]
        for part in before:
            self._decode(part, [])
        return self._decode(last, [len(last) - 1])[0]

    def step(self, tokens: list[int], place: int) -> list[int]:
        """Append a token to each sequence; returns the greedy next ones."""
        entries = [(token, place, sequence) for sequence, token in enumerate(tokens)]
        return self._decode(entries, list(range(len(tokens))))

    def logits(self, tokens: list[int]) -> NDArray[np.float32]:
        """Return the logits [tokens, vocabulary] behind each token of a text."""
        self.clear()
        entries = [(token, place, 0) for place, token in enumerate(tokens)]
        self._decode(entries, list(range(len(tokens))))
        return np.stack([self._logits(index) for index in range(len(tokens))])

    def _decode(self, entries: list[tuple[int, int, int]], outputs: list[int]) -> list[int]:
        batch = self._batch
        batch.n_tokens = len(entries)
        for index, (token, place, sequence) in enumerate(entries):
            batch.token[index], batch.pos[index] = token, place
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = index in outputs
        if self._llama.llama_decode(self._context, batch):
            raise RuntimeError("llama_decode failed")
        return [int(np.argmax(self._logits(index))) for index in outputs]

    def _logits(self, index: int) -> Any:
        logits = self._llama.llama_get_logits_ith(self._context, ctypes.c_int32(index))
        return np.ctypeslib.as_array(logits, (self._tokens,))

    def close(self) -> None:
        """Free what it holds."""
        self._llama.llama_batch_free(self._batch)
        self._llama.llama_free(self._context)
        self._llama.llama_model_free(self._model)
