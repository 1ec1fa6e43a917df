// One answer as it comes: its text, reasoning and calls, and where each token of them came from.

const TARGETS = new Set(["target", "bonus", "corrected"]);
const MARKERS_MAX = 400;  // characters between two parts of a reply that belong to neither

/** A text and the tokens it is made of: each ends at a character, and has an origin. */
export class Traced {
  constructor() {
    this.text = "";
    this.tokens = [];
  }
}

export class Reply {
  constructor(request, stream) {
    this.request = request;     // as chat completions take it
    this.isOld = Boolean(stream);
    this.stream = stream ?? "";  // the id by which the server keeps it, where it does
    this.content = new Traced();
    this.reasoning = new Traced();
    this.calls = [];            // of { id, name, arguments: Traced }
    this.bytes = new TextDecoder();
    this.raw = "";              // what the tokens say, with the markers that no part has
    this.pieces = [];           // of raw: where each token ends, and its origin
    this.read = 0;              // characters of raw that parts account for
    this.origins = new Map();
    this.tokens = 0;
    this.early = 0;             // tokens that came with the first
    this.steps = [];
    this.open = 0;              // tokens of the step that is not over
    this.started = performance.now();
    this.first = this.last = 0;
    this.reason = "";
    this.error = "";
    this.metrics = null;
    this.fingerprint = "";      // of the server that computed it
    this.approximations = [];  // what it was computed with
    this.segments = [];         // how each document was read
  }

  /** Take in tokens, before the parts that they make. */
  takeTokens(tokens, origins) {
    if (!tokens.length) return;
    this.last = performance.now();
    this.first ||= this.last;
    tokens.forEach((token, place) => this.#take(token, origins[place] ?? "target"));
    this.early ||= this.tokens;
  }

  #take(token, origin) {
    this.raw += this.bytes.decode(new Uint8Array(token.bytes), { stream: true });
    this.pieces.push({ end: this.raw.length, origin, title: described(token, origin) });
    this.tokens += 1;
    this.open += 1;
    this.origins.set(origin, (this.origins.get(origin) ?? 0) + 1);
    if (TARGETS.has(origin)) {
      this.steps.push(this.open);
      this.open = 0;
    }
  }

  call(id, name) {
    this.calls.push({ id, name, arguments: new Traced() });
  }

  /** Add text to a part, and find the tokens that say it. */
  say(part, text) {
    if (!text) return;
    const start = part.text.length;
    part.text += text;
    const found = this.raw.indexOf(text, this.read);
    if (found < 0 || found - this.read > MARKERS_MAX) return;
    // What no token is known for has no origin.
    if ((part.tokens.at(-1)?.end ?? 0) < start) part.tokens.push({ end: start });
    let from = found;
    for (const piece of this.#piecesAfter(found)) {
      if (from >= found + text.length) break;
      from = Math.min(piece.end, found + text.length);
      part.tokens.push({ end: start + from - found, origin: piece.origin, title: piece.title });
    }
    this.read = found + text.length;
  }

  * #piecesAfter(position) {
    let at = this.pieces.length;
    while (at > 0 && this.pieces[at - 1].end > position) at -= 1;
    yield* this.pieces.slice(at);
  }

  end(reason, metrics) {
    this.reason = reason;
    this.metrics = metrics;
  }

  get isWhole() {
    return ["stop", "length", "tool_calls", "completed", "incomplete"].includes(this.reason);
  }

  get isEmpty() {
    return !this.content.text && !this.reasoning.text && !this.calls.length;
  }

  /** Seconds from the first token to the last. */
  get seconds() {
    return (this.last - this.first) / 1000;
  }

  /** Tokens per second from the first on; null until there is a second. */
  get speed() {
    return this.seconds > 0 ? ((this.tokens - this.early) / this.seconds).toFixed(1) : null;
  }

  /** Return what a conversation keeps of it. */
  kept(asked) {
    const { model, messages, stream, ...rest } = this.request;
    return { role: "assistant", content: this.content.text, asked: { ...rest, ...asked },
      model, fingerprint: this.fingerprint || undefined,
      reasoning: this.reasoning.text || undefined, seed: this.metrics?.seed,
      seconds: this.seconds, whole: this.isWhole,
      calls: this.calls.length ? this.calls.map((call) =>
        ({ id: call.id, name: call.name, arguments: call.arguments.text })) : undefined,
      traces: this.content.tokens.map(({ end, origin }) => [end, origin]),
      passages: this.segments.length ? this.segments.map(passageFact) : undefined,
      facts: this.error || facts(this) };
  }
}

const ENDS = { stop: "complete", completed: "complete", length: "cut at max tokens",
  incomplete: "cut short", tool_calls: "calls a tool" };

function facts({ reason, metrics, speed, approximations }) {
  const found = [ENDS[reason] ?? reason];
  if (metrics && speed) found.push(`${speed} tok/s`);
  const spoke = metrics?.speculative_decoding;
  if (spoke) found.push(`${spoke.mean_acceptance_length.toFixed(2)} tokens per step`);
  if (metrics?.seed !== undefined) found.push(`seed ${metrics.seed}`);
  if (approximations.length) found.push(named(approximations));
  return found.join(" · ");
}

/** Say that a text is not the exact one, and why. */
export function named(approximations) {
  return `approximate: ${approximations.map(({ name }) => name).join(", ")}`;
}

/** Say how one document was read. */
function passageFact({ tokens, cached_tokens: cached, blended_tokens: kept }, number) {
  const how = cached ? `reused (${cached} of ${tokens} tokens)` : `read (${tokens} tokens)`;
  const share = kept ? `, ${Math.round((100 * (tokens - kept)) / tokens)} % computed again` : "";
  return `Document ${number + 1}: ${how}${share}`;
}

function described(token, origin) {
  const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
  const others = (token.top_logprobs ?? []).map((top) =>
    `${JSON.stringify(top.token)} ${percent(top.logprob)}`);
  return [`${origin} · ${percent(token.logprob)}`, ...others].join("\n");
}
