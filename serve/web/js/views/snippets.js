/** Code to copy: a request as curl and as Python. Everything that a user or a card wrote is quoted. */

import { address } from "../api.js";
import { h } from "../dom.js";
import { copyButton } from "../files.js";
import { token } from "../token.js";

/** A word that a POSIX shell takes literally, whatever it holds. */
export const shellWord = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

/** A string that Python takes literally; JSON's escapes are Python's too. */
export const pythonString = (text) => JSON.stringify(String(text));

function pythonValue(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(", ")}]`;
  return typeof value === "number" ? String(value) : pythonString(value);
}

export const serviceAddress = () => address("").replace(/\/$/, "");

/** A titled block of code with a button that copies it. */
export function snippet(title, text) {
  const code = h("pre", { tabindex: "0" }, text);
  const copy = copyButton(() => code.textContent, `the snippet: ${title}`);
  const node = h("div", { class: "snippet" }, h("div", { class: "snippet-top" }, h("h3", {}, title), copy), code);
  return { node, update: (next) => (code.textContent = next) };
}

/** The form as filled, as commands; `read` gives the request. */
export function recipeSnippets(read) {
  const curl = snippet("Shell", "");
  const python = snippet("Python", "");
  const node = h(
    "details",
    { class: "card" },
    h("summary", {}, "The same as a command"),
    h("p", { class: "hint" }, "What the form holds now, for a shell and for Python."),
    curl.node,
    python.node,
  );
  function update() {
    curl.update(curlText(read()));
    python.update(pythonText(read()));
  }
  update();
  return { node, update };
}

function curlText(body) {
  const header = token() === null ? "" : ' \\\n  -H "Authorization: Bearer $RAYCTSL_TOKEN"';
  const url = shellWord(`${serviceAddress()}/finetune`);
  return `curl -f ${url}${header} \\\n  -H 'Content-Type: application/json' \\\n  -d ${shellWord(JSON.stringify(body))}`;
}

function pythonText({ dataset, ...options }) {
  const guarded = token() !== null;
  const given = Object.entries(options).map(([name, value]) => `, ${name}=${pythonValue(value)}`);
  const secret = guarded ? ', os.environ["RAYCTSL_TOKEN"]' : "";
  return `${guarded ? "import os\n\n" : ""}from rayctsl.client import Client

client = Client(${pythonString(serviceAddress())}${secret})
job = client.finetune(${pythonString(dataset)}${given.join("")})
print(client.wait(job["id"])["result"])`;
}
