"""The text printed once the server is ready."""

from collections.abc import Sequence

from draftwerk.api.shared.ports import ServedModel


def banner(
    model: ServedModel,
    url: str,
    elsewhere: str = "",
    keyed: bool = False,
    more: Sequence[str] | None = None,
) -> str:
    """Return what is served, where, and how to try it.

    `elsewhere` is its URL on other machines; `keyed` if requests need a key, which is not shown.
    `more` are the names of further models where all are loaded when they are asked for.
    """
    facts = [model.name, model.device, model.dtype, model.attention]
    drafts = ", ".join((*model.draft_sources, model.draft_model)).strip(", ") or "none"
    exact = "yes" if model.exact else "up to near-ties"
    others = f"\n  {elsewhere}    from other machines\n" if elsewhere else ""
    ranks = ""
    if (count := model.pipeline_parallel * model.tensor_parallel) > 1:
        ranks = (
            f"\n  divided among {count} processes: pipeline {model.pipeline_parallel} x "
            f"tensor {model.tensor_parallel}"
        )
    tools = f"\n  tools: {model.tool_note}" if model.tool_note else ""
    sampling = _file_format(model) + _sampling(model) + _approximations(model) + tools
    key = ' \\\n    -H "authorization: Bearer $KEY"' if keyed else ""
    path, body = _example(model)
    kernels = f"\n  kernels: {model.kernels}" if model.kernels else ""
    about = (
        f"{' · '.join(fact for fact in facts if fact)}\n  context {model.context_max} tokens · "
        f"drafts: {drafts} · exact: {exact}{kernels}{ranks}{sampling}"
    )
    if more is not None:
        about = f"loaded on request: {', '.join((model.name, *more))}"
    return f"""
  {about}

  {url}    a page to try it; any OpenAI client at {url}/v1
{others}
  curl -N {url}/v1/{path} -H 'content-type: application/json'{key} \\
    -d '{body}'

  Ctrl-C stops it.
"""


def _example(model: ServedModel) -> tuple[str, str]:
    """Return the address and the body of a request that the model can serve."""
    if model.vectors.sees_all:
        return "embeddings", '{"input": "Hello!"}'
    if not model.chats:
        return "completions", '{"stream": true, "prompt": "Once upon a time"}'
    return (
        "chat/completions",
        '{"stream": true, "messages": [{"role": "user", "content": "Hello!"}]}',
    )


def _sampling(model: ServedModel) -> str:
    """Return the line of how tokens are drawn for requests that do not say it."""
    given = [f"{name} {value:g}" for name, value in model.sampling.given().items()]
    if not given:
        return ""
    words = ", ".join(given).replace("_", " ")
    return f"\n  sampling: {words} by default, as {model.sampling_source} says"


def _approximations(model: ServedModel) -> str:
    """Return the line of what is not exact, and how far it is from what is."""
    if not model.approximations:
        return ""
    names = ", ".join(map(str, model.approximations))
    if model.quality is None:
        asked = " ".join(f"--approximate {each}" for each in model.approximations)
        return f"\n  approximate: {names}; never measured here: draftwerk doctor {asked}"
    kl, same = model.quality.kl_mean, 100 * model.quality.same_best
    return f"\n  approximate: {names}; KL {kl:.4f} nats a token, {same:.1f} % the same best token"


def _file_format(model: ServedModel) -> str:
    """Return the line for a quantised file: what is in it, or what it is served as instead."""
    if model.weights:
        return f"\n  weights: {model.weights}"
    if not model.file_format:
        return ""
    said = f"\n  format: the file's weights are {model.file_format}, served as {model.dtype}"
    if (model.dtype, model.attention) != ("bf16", "native"):
        return said
    return f"{said}; --dtype stored takes less memory and time, with other texts"
