"""A minimal chat server around libraries that have none, for measuring them over HTTP.

It runs inside the library's own environment and needs nothing but that library:
`python shim.py transformers|openvino MODEL --port N [--prompt-lookup TOKENS]`.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any, Protocol

REQUESTS_MAX = 1 << 16
# Token ids as they come, None at the end.
Arrived = queue.Queue[list[int] | None]
Messages = list[dict[str, str]]


class PeerEngine(Protocol):
    """Yields pieces of text; the last item is the counts (prompt tokens, output tokens)."""

    def answer(
        self, messages: Messages, limit: int, ignore_eos: bool
    ) -> Iterator[str | tuple[int, int]]: ...


class Transformers:
    """`generate`, one request at a time: the library has no scheduler to share a batch."""

    def __init__(self, model: str, prompt_lookup: int = 0) -> None:
        self._library: Any = import_module("transformers")
        self._drafts = {"prompt_lookup_num_tokens": prompt_lookup} if prompt_lookup else {}
        self._tokenizer = self._library.AutoTokenizer.from_pretrained(model)
        self._model = self._library.AutoModelForCausalLM.from_pretrained(model, dtype="bfloat16")
        self._turn = threading.Lock()

    def answer(
        self, messages: Messages, limit: int, ignore_eos: bool
    ) -> Iterator[str | tuple[int, int]]:
        inputs = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        prompt = int(inputs["input_ids"].shape[1])
        streamer = self._library.TextIteratorStreamer(
            self._tokenizer, True, skip_special_tokens=True
        )
        with self._turn:
            total: list[int] = []
            wanted = dict(inputs, max_new_tokens=limit, do_sample=False, streamer=streamer)
            wanted |= self._drafts
            if ignore_eos:
                wanted["min_new_tokens"] = limit
            worker = threading.Thread(
                target=lambda: total.append(self._model.generate(**wanted).shape[1])
            )
            worker.start()
            yield from streamer
            worker.join()
        yield prompt, (total[0] if total else prompt) - prompt


class OpenVino:
    """Continuous batching: one thread owns the pipeline, requests come and go through queues."""

    def __init__(self, model: str) -> None:
        self._genai: Any = import_module("openvino_genai")
        settings = self._genai.SchedulerConfig()
        settings.max_num_batched_tokens = 2048
        self._pipeline = self._genai.ContinuousBatchingPipeline(model, settings, "CPU")
        self._tokenizer = self._pipeline.get_tokenizer()
        self._coming: queue.Queue[tuple[Any, Any, Arrived]] = queue.Queue()
        threading.Thread(target=self._step_for_ever, daemon=True).start()

    def answer(
        self, messages: Messages, limit: int, ignore_eos: bool
    ) -> Iterator[str | tuple[int, int]]:
        prompt = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        encoded = self._tokenizer.encode(prompt, add_special_tokens=False).input_ids
        config = self._genai.GenerationConfig(
            max_new_tokens=limit, do_sample=False, ignore_eos=ignore_eos
        )
        config.set_eos_token_id(self._tokenizer.get_eos_token_id())
        arrived: Arrived = queue.Queue()
        self._coming.put((encoded, config, arrived))
        ids: list[int] = []
        shown = ""
        while (new := arrived.get()) is not None:
            ids += new
            text = str(self._tokenizer.decode(ids))
            # An unfinished character shows as U+FFFD; wait for the rest of it.
            if len(text) > len(shown) and not text.endswith("\ufffd"):
                yield text[len(shown) :]
                shown = text
        yield int(encoded.shape[1]), len(ids)

    def _step_for_ever(self) -> None:
        running: list[tuple[Any, Arrived]] = []
        for number in range(1 << 62):
            # Only an idle pipeline waits for a request; a busy one takes what is there.
            while not running or not self._coming.empty():
                encoded, config, arrived = self._coming.get()
                place = number * REQUESTS_MAX + len(running)
                handle = self._pipeline.add_request(place, encoded, config)
                running.append((handle, arrived))
            self._pipeline.step()
            running = [pair for pair in running if self._delivered(*pair)]

    def _delivered(self, handle: Any, arrived: Arrived) -> bool:
        """Pass on what is new; False when the answer is complete."""
        while handle.can_read():
            for output in handle.read().values():
                arrived.put(list(output.generated_ids))
        running = handle.get_status() == self._genai.GenerationStatus.RUNNING
        if not running:
            arrived.put(None)
        return running


class Handler(BaseHTTPRequestHandler):
    """`/v1/models` and streamed `/v1/chat/completions`."""

    engine: PeerEngine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"object": "list", "data": [{"id": "shim"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        # A client that hung up needs no traceback.
        with suppress(ConnectionError):
            self._answer()

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        limit, ignore_eos = int(body.get("max_tokens", 128)), bool(body.get("ignore_eos"))
        for item in self.engine.answer(body["messages"], limit, ignore_eos):
            if isinstance(item, str):
                self._event({"choices": [{"index": 0, "delta": {"content": item}}]})
            else:
                self._finish(*item)
        self.wfile.write(b"data: [DONE]\n\n")

    def _finish(self, prompt: int, output: int) -> None:
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        self._event({"choices": [], "usage": usage})

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line per request is work that the other servers do not do."""


class PeerServer(ThreadingHTTPServer):
    request_queue_size = 256


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["transformers", "openvino"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--prompt-lookup", type=int, default=0, metavar="TOKENS")
    given = parser.parse_args()
    if given.engine == "transformers":
        Handler.engine = Transformers(given.model, given.prompt_lookup)
    else:
        Handler.engine = OpenVino(given.model)
    PeerServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
