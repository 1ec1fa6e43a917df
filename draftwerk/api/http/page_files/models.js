// The models that the server has, and the one that is asked.

import { $, element } from "./dom.js";
import { headers } from "./settings.js";

const PLACE = "draftwerk.model";
const STATES = { loading: "loading…", unloaded: "not loaded", leaving: "being unloaded" };

/** What `/v1/models` lists; where it is one model, there is nothing to choose. */
export class ModelList {
  constructor() {
    this.models = [];
    $("models").onchange = () => {
      kept($("models").value);
      this.#choose($("models").value);
    };
  }

  /** Read the list again; without a choice, ask the model `first`, or go on with what is asked. */
  async refresh(first) {
    const reply = await fetch("/v1/models", { headers: headers() });
    if (!reply.ok) return;
    this.models = (await reply.json()).data;
    const several = new Set(this.models.map((each) => each.root ?? each.id)).size > 1;
    const asked = (several && this.#named(kept())?.id) || first || $("model").dataset.name;
    if (asked) this.#choose(asked);
    $("models").hidden = !several;
    if (several && document.activeElement !== $("models")) this.#show();
  }

  /** Return the model of a name, or one under another name that computes the same. */
  like(name, fingerprint) {
    return this.#named(name)
      ?? this.models.find((each) => fingerprint && each.system_fingerprint === fingerprint);
  }

  #named(name) {
    return this.models.find(({ id }) => id === name);
  }

  /** Ask this model from now on; empty fields show what it recommends. */
  #choose(name) {
    $("model").dataset.name = name;
    const found = this.#named(name)?.sampling;
    for (const field of ["temperature", "top_p"]) $(field).placeholder = found?.[field] ?? 1;
  }

  #show() {
    $("models").replaceChildren(...this.models.map(({ id, state }) => element("option",
      { value: id, selected: id === $("model").dataset.name },
      [id, STATES[state]].filter(Boolean).join(" · "))));
  }
}

/** Return the model that was chosen last, or keep that it is this one. */
function kept(name) {
  try {
    if (name === undefined) return localStorage.getItem(PLACE);
    localStorage.setItem(PLACE, name);
  } catch { /* a browser that keeps nothing */ }
  return name;
}
