"""Distributions that set every sampling parameter, each in one and then in pairs."""

from draftwerk.speculative.sampling import Sampling

SAMPLINGS: dict[str, Sampling] = {
    "greedy": Sampling(temperature=0.0),
    "temperature": Sampling(temperature=1.0),
    "cool": Sampling(temperature=0.5),
    "top_k": Sampling(temperature=1.0, top_k=5),
    "top_p": Sampling(temperature=0.8, top_p=0.95),
    "min_p": Sampling(temperature=1.2, min_p=0.1),
    "repetition_penalty": Sampling(temperature=0.0, repetition_penalty=1.3),
    "presence_penalty": Sampling(temperature=0.7, presence_penalty=0.8),
    "frequency_penalty": Sampling(temperature=0.0, frequency_penalty=0.6),
    "logit_bias": Sampling(temperature=0.7, logit_bias=((5, 3.0), (11, -4.0))),
    "tokens_min": Sampling(temperature=1.0, tokens_min=10),
    "logprobs": Sampling(temperature=0.0, logprobs=3),
    "everything": Sampling(
        temperature=0.9,
        top_k=40,
        top_p=0.9,
        min_p=0.02,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.2,
        logit_bias=((7, 1.0),),
        tokens_min=5,
        logprobs=1,
    ),
}
PAIRWISE: dict[str, Sampling] = {
    "greedy": SAMPLINGS["greedy"],
    "greedy, penalised": Sampling(
        temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.6, logprobs=3
    ),
    "cool, biased": Sampling(temperature=0.5, logit_bias=((5, 3.0), (11, -4.0))),
    "everything": SAMPLINGS["everything"],
}
"""Every parameter of `SAMPLINGS` in few distributions, so that each meets every way of drafting in
less time."""
