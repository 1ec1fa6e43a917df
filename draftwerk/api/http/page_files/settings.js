// The fields at the side: what they ask for, and that they survive a reload.

import { $ } from "./dom.js";

const KEPT = ["temperature", "top_p", "max_tokens", "seed", "system", "prediction", "passages",
  "blend", "format",
  "tools", "tool_choice", "reasoning_effort", "compare", "b_temperature", "b_top_p",
  "b_max_tokens", "b_speculate", "b_system", "transport", "theme", "speculate", "colours",
  "markdown", "keep"];  // the API key is not among them
const PLACE = "draftwerk.settings";
const SEED_END = 2 ** 48;
const EXAMPLE_TOOLS = [{ type: "function", function: { name: "get_weather",
  description: "The weather at a place.",
  parameters: { type: "object", required: ["city"], additionalProperties: false,
    properties: { city: { type: "string" }, unit: { enum: ["celsius", "fahrenheit"] } } } } }];

const isSwitch = (field) => field.type === "checkbox";
const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));

export const headers = () => ({ "content-type": "application/json",
  ...($("key").value ? { authorization: `Bearer ${$("key").value}` } : {}) });

export const anySeed = () => Math.floor(Math.random() * SEED_END);

/** Return what the settings ask for, as chat completions take it, without model and messages. */
export function asked() {
  const body = { system: $("system").value || undefined, max_tokens: number("max_tokens"),
    temperature: number("temperature"), top_p: number("top_p"), seed: number("seed") };
  const expected = $("prediction").value;
  if (expected) body.prediction = { type: "content", content: expected };
  const passages = $("passages").value.split(/\n\s*\n/).map((text) => text.trim()).filter(Boolean);
  if (passages.length) {
    body.documents = passages;
    if ($("blend").value === "reuse") body.blend = true;
  }
  if (!$("speculate").checked) body.speculation = { enabled: false };
  if ($("format").value !== "text") body.response_format = { type: $("format").value };
  if ($("reasoning_effort").value) body.reasoning_effort = $("reasoning_effort").value;
  const tools = $("tools").value.trim();
  if (tools) {
    body.tools = parsedTools(tools);
    body.tool_choice = $("tool_choice").value;
  }
  return body;
}

/** Return the other side's settings: `one`, but for the fields that are filled in. */
export function askedBeside(one) {
  const other = structuredClone(one);
  for (const name of ["temperature", "top_p", "max_tokens"]) {
    other[name] = number(`b_${name}`) ?? one[name];
  }
  if ($("b_system").value) other.system = $("b_system").value;
  if ($("b_speculate").value === "no") other.speculation = { enabled: false };
  if ($("b_speculate").value === "yes") delete other.speculation;
  return other;
}

/** Return in words in what `other` differs from `one`. */
export function difference(one, other) {
  const words = ["temperature", "top_p", "max_tokens"]
    .filter((name) => one[name] !== other[name])
    .map((name) => `${name.replace("_", " ")} ${other[name] ?? "default"}`);
  if (one.system !== other.system) words.push("another system prompt");
  const [drafts, others] = [one, other].map((each) => each.speculation?.enabled !== false);
  if (drafts !== others) words.push(others ? "guessing ahead" : "without guessing");
  return words.join(", ") || "the same settings";
}

function parsedTools(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`The tools are no JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("The tools are no JSON list.");
  return tools.map((each) => (each.function ? each : { type: "function", function: each }));
}

function keepSettings() {
  const kept = {};
  for (const id of KEPT) kept[id] = isSwitch($(id)) ? $(id).checked : $(id).value;
  try {
    localStorage.setItem(PLACE, JSON.stringify(kept));
  } catch { /* a browser that keeps nothing */ }
}

function restoreSettings() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(PLACE)) ?? {};
  } catch { /* nothing, or no JSON */ }
  for (const id of KEPT) {
    if (!(id in kept)) continue;
    if (isSwitch($(id))) $(id).checked = kept[id];
    else $(id).value = kept[id];
  }
}

function resetSettings() {
  for (const id of KEPT) {
    const field = $(id);
    if (isSwitch(field)) field.checked = field.defaultChecked;
    else if (field.options) {
      const chosen = [...field.options].findIndex((option) => option.defaultSelected);
      field.selectedIndex = Math.max(chosen, 0);
    } else field.value = field.defaultValue;
  }
}

function showTheme() {
  const theme = $("theme").value;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** Read the fields back and keep them; `changed` is called with the name of a field. */
export function startSettings(changed) {
  const told = (id) => {
    showTheme();
    changed(id);
  };
  restoreSettings();
  for (const id of KEPT) {
    $(id).addEventListener("input", () => {
      keepSettings();
      told(id);
    });
  }
  $("reset").onclick = () => {
    resetSettings();
    keepSettings();
    told("reset");
  };
  $("example-tools").onclick = () => {
    $("tools").value = JSON.stringify(EXAMPLE_TOOLS, null, 1);
    keepSettings();
  };
  told("start");
  // On a wide window the settings are always open; on a narrow one they fold, above the talk.
  const narrow = matchMedia("(max-width: 52rem)");
  narrow.onchange = () => { $("settings").open = !narrow.matches; };
  narrow.onchange();
}
