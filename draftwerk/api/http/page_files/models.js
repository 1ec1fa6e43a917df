// The models that the server has, and the one that is asked.

import { $, element } from "./dom.js";
import { headers } from "./settings.js";

const PLACE = "draftwerk.model";
const LOADING_MS = 1000;  // between looks at a model that is being loaded
const STATES = { loading: "loading…", unloaded: "not loaded", leaving: "being unloaded" };

/** What `/v1/models` lists; where it is one model, there is nothing to choose. */
export class ModelList {
  constructor() {
    Object.assign(this, { models: [], timer: 0 });
    $("models").onchange = () => {
      kept($("models").value);
      this.#choose($("models").value);
      this.#load($("models").value);
    };
  }

  /** Read the list again; without a choice, ask the model `first`, or go on with what is asked. */
  async refresh(first) {
    const reply = await fetch("/v1/models", { headers: headers() });
    if (!reply.ok) return;
    this.models = (await reply.json()).data;
    const several = this.models.length > 1;
    const asked = (several && this.#named(kept())?.id) || first || $("model").dataset.name;
    if (asked) this.#choose(asked);
    $("models").hidden = !several;
    if (several) this.#show();
    clearTimeout(this.timer);
    if (this.models.some(({ state }) => state === "loading")) {
      this.timer = setTimeout(() => this.refresh(), LOADING_MS);
    }
  }

  /** Have a model loaded, so that the first question need not wait for it. */
  async #load(name) {
    if (this.#named(name)?.state !== "unloaded") return;
    await fetch("/v1/models/load",
      { method: "POST", headers: headers(), body: JSON.stringify({ model: name }) });
    await this.refresh();
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
    const { sampling: found, capabilities = [] } = this.#named(name) ?? {};
    $("model").dataset.sees = capabilities.includes("vision");
    for (const field of ["temperature", "top_p"]) $(field).placeholder = found?.[field] ?? 1;
  }

  #show() {
    const labels = this.models.map(({ id, state, progress, fault }) =>
      [id, STATES[state], state === "loading" && progress, state === "unloaded" && fault]
        .filter(Boolean).join(" · "));
    const shown = [...$("models").options];
    if (shown.length === labels.length) {  // an open list stays open
      shown.forEach((option, place) =>
        Object.assign(option, { value: this.models[place].id, textContent: labels[place] }));
    } else {
      $("models").replaceChildren(...this.models.map(({ id }, place) =>
        element("option", { value: id }, labels[place])));
    }
    $("models").value = $("model").dataset.name;
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
