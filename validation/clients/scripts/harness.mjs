// What the scripts for Node share: a tool, checks, and named cases that pass, are refused or fail.

export const { MODEL } = process.env;
export const HELLO = "Name a river.";
export const ASK_TOOL = "What is the weather in Paris?";
export const TOOL = {
  name: "get_weather",
  description: "Returns the weather of a city.",
  parameters: {
    type: "object",
    properties: {
      city: { type: "string", maxLength: 20 },
      unit: { type: "string", enum: ["celsius", "fahrenheit"] },
    },
    required: ["city", "unit"],
    additionalProperties: false,
  },
};

export const user = (content) => [{ role: "user", content }];

/** Check a call against the tool's schema; returns its result. */
export const called = (name, { city, unit, ...rest }) => {
  const valid = name === TOOL.name && typeof city === "string" && !Object.keys(rest).length
    && TOOL.parameters.properties.unit.enum.includes(unit);
  if (!valid) throw new Error(`${name}: ${city}, ${unit}`);
  return "18 degrees and rain.";
};

export const checkText = (text) => {
  if (typeof text !== "string" || !text.trim()) throw new Error(`no text: ${text}`);
};

/** Run the cases, and print each one's outcome as a line of JSON. */
export const runAll = async (cases) => {
  for (const [name, run] of Object.entries(cases)) {
    let outcome = "passed", words = "";
    try {
      await run();
    } catch (error) {
      const said = String(error.message);
      const refused = said.includes("not supported by this server; use ");
      outcome = refused ? "refused" : "failed";
      words = refused ? said.slice(said.indexOf("`")).replace(/\.$/, "")
        : `${error.name}: ${said}`.slice(0, 160);
    }
    console.log(JSON.stringify({ case: name, outcome, words }));
  }
};
