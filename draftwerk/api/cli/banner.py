"""The text printed once the server is ready."""

from draftwerk.api.core.ports import ServedModel


def banner(model: ServedModel, url: str, elsewhere: str = "") -> str:
    """Return what is served, where, and how to try it; `elsewhere` is its URL on other machines."""
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
    weights = f"\n  weights: {model.weights}" if model.weights else ""
    kernels = f"\n  kernels: {model.kernels}" if model.kernels else ""
    return f"""
  {" · ".join(fact for fact in facts if fact)}
  context {model.context_max} tokens · drafts: {drafts} · exact: {exact}{weights}{kernels}{ranks}

  {url}    a page to try it; any OpenAI client at {url}/v1
{others}
  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'

  Ctrl-C stops it.
"""
