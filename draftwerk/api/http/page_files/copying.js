// The next request as a command line, and as a Python program.

import { $, copy } from "./dom.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Have the two buttons copy what `request` returns. */
export function startCopying(request) {
  $("curl").onclick = () => copy($("curl"), asCurl(request()));
  $("python").onclick = () => copy($("python"), asPython(request()));
}

function asCurl(body) {
  const key = $("key").value ? ` \\\n  -H "authorization: Bearer $DRAFTWERK_API_KEY"` : "";
  return `curl -N ${location.origin}/v1/chat/completions \\\n`
    + `  -H 'content-type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

// Every string that JSON.stringify writes means the same in Python; the other values do not.
function pythonValue(value, indent = "") {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const items = Array.isArray(value)
    ? value.map((each) => pythonValue(each, inner))
    : Object.entries(value).filter(([, each]) => each !== undefined)
      .map(([name, each]) => `${JSON.stringify(name)}: ${pythonValue(each, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return items.length
    ? `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}` : open + close;
}

function asPython({ model, messages, stream, speculation, ...rest }) {
  const lines = Object.entries({ model, messages, ...rest,
    ...(speculation && { extra_body: { speculation } }) })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `    ${name}=${pythonValue(value, "    ")},`);
  return `from openai import OpenAI

client = OpenAI(base_url="${location.origin}/v1", api_key="${$("key").value ? "..." : "none"}")
stream = client.chat.completions.create(
${lines.join("\n")}
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
`;
}
