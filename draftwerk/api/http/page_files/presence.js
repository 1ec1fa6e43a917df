// Whether the server answers, and whom it lets in: its key is asked for, and kept for this tab.

import { $, announce } from "./dom.js";
import { learnSources } from "./figures.js";
import { named } from "./reply.js";
import { headers } from "./settings.js";

const KEY = "draftwerk.key";
const LOOK_MS = 4000, AGAIN_MS = 1000, SILENT_MS = 10_000;
const AWAY = "The server does not answer. It is asked again every second; what you write stays here.";

/** Greets the server, and goes on looking whether it is there. */
export class Presence {
  constructor(models) {
    Object.assign(this, { models, isAway: false, timer: 0 });
    $("key").value = sessionStorage.getItem(KEY) ?? "";
    $("key").onchange = () => this.#useKey();
    $("door").onsubmit = (event) => {
      event.preventDefault();
      this.#useKey();
    };
    $("another-key").onclick = () => this.askKey("");
    setInterval(() => this.#look(), LOOK_MS);
  }

  /** Ask for the key, where it is missing or not known. */
  askKey(why = $("key").value ? "The server does not know this key." : "") {
    $("door").hidden = false;
    $("door-note").textContent = why;
    $("key").focus();
  }

  #useKey() {
    sessionStorage.setItem(KEY, $("key").value);
    $("door").hidden = true;
    this.greet();
  }

  /** Read who is there; where the server is away, until it is back. */
  async greet() {
    clearTimeout(this.timer);
    try {
      const reply = await fetch("/v1/capabilities",
        { headers: headers(), signal: AbortSignal.timeout(SILENT_MS) });
      if (reply.status === 401) {
        this.#show("");
        $("model").textContent = "enter an API key";
        this.askKey();
        return;
      }
      const card = await reply.json();
      if (!reply.ok) throw Object.assign(new Error(card.error?.message), { isServers: true });
      this.#show("");
      learnSources(card.origins);
      await this.models.refresh(card.model);
      this.#introduce(card);
    } catch (error) {
      this.#show(error.isServers && error.message ? error.message : AWAY);
      $("model").textContent = "waiting for the server…";
      this.timer = setTimeout(() => this.greet(), AGAIN_MS);
    }
  }

  #introduce(card) {
    $("model").textContent = [$("models").hidden && card.model, `on ${card.device}`]
      .filter(Boolean).join(" · ");
    const sources = card.draft_sources.join(", ") || "nothing";
    $("model").title = `Weights: ${card.dtype}. Its next words are guessed by: ${sources}`;
    const approximate = card.approximations.length && named(card.approximations);
    $("state").textContent = approximate || (card.exact ? "exact" : "");
    $("state").title = card.exact ? "One seed gives one text, bit for bit" : "";
  }

  async #look() {
    if (document.hidden || this.isAway) return;
    const isThere = await fetch("/health", { signal: AbortSignal.timeout(SILENT_MS) })
      .then(() => true, () => false);
    if (!isThere && !this.isAway) this.greet();
  }

  /** Say why the server cannot be talked to; with nothing, that it can again. */
  #show(why) {
    if (this.isAway && !why) announce("The server is back.");
    this.isAway = Boolean(why);
    $("away").textContent = why;
  }
}
