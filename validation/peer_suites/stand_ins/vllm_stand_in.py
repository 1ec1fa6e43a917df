"""A pytest plugin: what vLLM's tests import of vLLM, and the server at PEER_URL for theirs.

Cases that need vLLM's own classes are skipped when they use one.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self

import httpx
import openai
import pytest

URL = os.environ["PEER_URL"]


class OwnClass:
    """Any name of vLLM's modules."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> None:
        pytest.skip(f"needs vLLM's own {self.name}")

    def __getattr__(self, name: str) -> "OwnClass":
        if name.startswith("__"):
            raise AttributeError(name)
        return OwnClass(f"{self.name}.{name}")


class ServedTokenizer:
    """The tokenizer of the model that is served, whatever name a test has for it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        body = {"prompt": text, "add_special_tokens": add_special_tokens}
        return httpx.post(f"{URL}/tokenize", json=body, timeout=60).json()["tokens"]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        body = {"tokens": list(tokens), "skip_special_tokens": skip_special_tokens}
        return httpx.post(f"{URL}/detokenize", json=body, timeout=60).json()["prompt"]


def get_tokenizer(*_: Any, **__: Any) -> ServedTokenizer:
    return ServedTokenizer()


class ServerStandIn:
    """The server at PEER_URL, as tests start and stop one of theirs."""

    url_root = URL

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def url_for(self, *parts: str) -> str:
        return "/".join((URL, *parts))

    def get_client(self, **given: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0, **given)

    def get_async_client(self, **given: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0, **given)


class OwnModule(ModuleType):
    """Any module of vLLM."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return get_tokenizer if name == "get_tokenizer" else OwnClass(name)


class OwnModules(MetaPathFinder, Loader):
    """Makes modules of vLLM where they are imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        is_own = fullname.partition(".")[0] == "vllm"
        return ModuleSpec(fullname, self, is_package=True) if is_own else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return OwnModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


utilities: Any = ModuleType("tests.utils")
utilities.RemoteOpenAIServer = ServerStandIn
utilities.ROCM_EXTRA_ARGS = []
sys.modules["tests.utils"] = utilities
sys.meta_path.insert(0, OwnModules())
