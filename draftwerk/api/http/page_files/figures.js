// The figures at the side: what the last answer cost, and what its colours mean.

import { $, bars, element, show } from "./dom.js";

const STEPS_SHOWN = 120;

export const MEANINGS = {
  target: "computed by the model; nothing was guessed here",
  bonus: "computed by the model in the same step, as every guess before was right",
  corrected: "computed by the model in place of a wrong guess",
};

/** Take in the server's draft sources: what each drafts, and its colour. */
export function learnSources(sources) {
  const sheet = new CSSStyleSheet();
  for (const { name, meaning, light, dark } of sources) {
    MEANINGS[name] = meaning;
    sheet.insertRule(`[data-origin="${name}"] { --c: light-dark(${light}, ${dark}); }`);
    for (const token of document.querySelectorAll(`.token[data-origin="${name}"]`)) {
      if (!token.title.endsWith(meaning)) token.title += `\n${meaning}`;
    }
  }
  document.adoptedStyleSheets = [sheet];
}

/** Show a reply's figures as of now. */
export function showFigures(reply) {
  const { tokens, steps, open } = reply;
  show("ttft", reply.first ? Math.round(reply.first - reply.started) : null, "ms");
  show("speed", reply.speed, "tok/s");
  show("accepted", steps.length ? ((tokens - open) / steps.length).toFixed(2) : null);
  show("count", tokens);
  bars($("steps"), steps.slice(-STEPS_SHOWN), 4);
  drawLegend(reply.origins);
}

function drawLegend(origins) {
  const sorted = [...origins].sort((one, other) => other[1] - one[1]);
  $("legend").replaceChildren(...sorted.flatMap(([origin, count]) => [
    element("dt", { "data-origin": origin }, `${origin} ${count}`),
    element("dd", {}, MEANINGS[origin] ?? "another source"),
  ]));
}
