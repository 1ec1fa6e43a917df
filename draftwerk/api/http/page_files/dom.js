// Elements, the clipboard, and what a screen reader is told.

export const $ = (id) => document.getElementById(id);

/** Return an element; strings among its children become text, never markup. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) made[name] = value;
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", class: "quiet", onclick, ...attributes }, label);
}

/** Show a figure, or that there is none. */
export function show(id, value, unit = "") {
  $(id).textContent = value ?? "–";
  if (value !== null && unit) $(id).append(" ", element("small", {}, unit));
}

/** Draw values as bars from the floor; the highest is at least `least`. */
export function bars(place, values, least) {
  const most = Math.max(least, ...values);
  place.replaceChildren(...values.map((value) => {
    const bar = element("i");
    bar.style.height = `${(100 * value) / most}%`;
    return bar;
  }));
}

/** Have a screen reader say a text when it comes to it. */
export function announce(text) {
  const place = $("announce");
  place.textContent = "";
  requestAnimationFrame(() => { place.textContent = text; });
}

/** Copy a text, and show so on the button; where the browser forbids it, show the text. */
export async function copy(source, text) {
  if (!await toClipboard(text)) {
    $("shown-text").value = text;
    $("shown").showModal();
    $("shown-text").select();
    $("shown-text").scrollTop = 0;
    return;
  }
  const label = source.textContent;
  source.textContent = "Copied";
  announce("Copied");
  setTimeout(() => { source.textContent = label; }, 1200);
}

// Browsers have a clipboard for https and this machine alone; elsewhere there is the old way.
async function toClipboard(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(() => true, () => false);
  }
  const area = element("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  try {
    return document.execCommand("copy");
  } finally {
    area.remove();
  }
}
