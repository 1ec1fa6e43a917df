// What the server does now, for all of its users: drawn from /metrics while it can be seen.

import { $, bars, element, show } from "./dom.js";
import { headers } from "./settings.js";

const EACH_MS = 2000;
const SHOWN = 60;  // readings in the picture of the speed
const LINE = /^([a-z_:]+)(?:\{(.*)\})? (\S+)$/i;

/** Return the samples of a page of metrics, by name: labels and value of each. */
export function samples(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = LINE.exec(line) ?? [];
    if (!name) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels, value: Number(value) });
  }
  return found;
}

const sum = (found, name) =>
  (found.get(name) ?? []).reduce((total, { value }) => total + value, 0);

/** Return the values of a metric by draft source. */
function bySource(found, name) {
  const values = (found.get(name) ?? []).map(({ labels, value }) =>
    [/source="([^"]*)"/.exec(labels)?.[1], value]);
  return new Map(values);
}

/** Return the figures of one reading. */
export function figures(found) {
  const accepted = bySource(found, "draftwerk_accepted_tokens_total");
  const drafted = bySource(found, "draftwerk_draft_tokens_total");
  const blocks = sum(found, "draftwerk_blocks");
  return {
    open: sum(found, "draftwerk_generations"),
    waiting: sum(found, "vllm:num_requests_waiting"),
    tokens: sum(found, "vllm:generation_tokens_total"),
    used: blocks ? sum(found, "draftwerk_blocks_used") / blocks : 0,
    kept: blocks ? sum(found, "draftwerk_blocks_cached") / blocks : 0,
    pauses: sum(found, "draftwerk_actor_restarts_total")
      + sum(found, "draftwerk_device_recoveries_total"),
    drafts: [...drafted].map(([source, count]) =>
      ({ source, drafted: count, accepted: accepted.get(source) ?? 0 }))
      .sort((one, other) => other.accepted - one.accepted),
  };
}

/** Reads and draws while the panel is in sight; `also` is called beside each reading. */
export class ServerPanel {
  constructor(also) {
    Object.assign(this, { also, last: null, speeds: [], timer: 0, inSight: false });
    new IntersectionObserver((entries) => {
      this.inSight = entries.at(-1).isIntersecting;
      this.#next(0);
    }).observe($("server"));
    document.addEventListener("visibilitychange", () => this.#next(0));
  }

  #next(after) {
    clearTimeout(this.timer);
    if (!this.inSight || document.hidden) {
      this.last = null;  // what happens meanwhile is no speed
      return;
    }
    this.timer = setTimeout(async () => {
      try {
        await this.#read();
      } catch { /* the server is away; the next reading shows it again */ }
      this.#next(EACH_MS);
    }, after);
  }

  async #read() {
    const reply = await fetch("/metrics", { headers: headers() });
    if (!reply.ok) return;
    const now = { ...figures(samples(await reply.text())), at: performance.now() };
    if (this.last && now.tokens >= this.last.tokens) {
      this.speeds.push((1000 * (now.tokens - this.last.tokens)) / (now.at - this.last.at));
      this.speeds.splice(0, this.speeds.length - SHOWN);
    }
    this.last = now;
    this.#draw(now);
    await this.also();
  }

  #draw({ open, waiting, used, kept, pauses, drafts }) {
    const percent = (share) => Math.round(100 * share);
    show("users", open, waiting ? `+ ${waiting} waiting` : "");
    show("load", this.speeds.at(-1)?.toFixed(this.speeds.at(-1) < 10 ? 1 : 0) ?? null, "tok/s");
    show("cache", percent(used), percent(kept) ? `% + ${percent(kept)} % kept` : "%");
    show("pauses", pauses);
    bars($("loads"), this.speeds, 1);
    $("drafts").replaceChildren(...drafts.flatMap(({ source, drafted, accepted }) => [
      element("dt", { "data-origin": source }, source),
      element("dd", {}, `${accepted.toLocaleString("en")} of ${drafted.toLocaleString("en")} right`),
    ]));
    $("drafts-none").hidden = drafts.length > 0;
  }
}
