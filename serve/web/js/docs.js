/** The API page: every request that openapi.json names, what it takes and answers, and how to send it from a shell. */

import { get } from "./api.js";
import { h, loading } from "./dom.js";
import { token } from "./token.js";
import { serviceAddress, shellWord, snippet } from "./views/snippets.js";

/** Text in which `code` is marked. */
const prose = (text) => (text ?? "").split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const schemaName = (reference) => reference.split("/").at(-1);

async function content() {
  const document = await get("openapi.json");
  const groups = new Map();
  for (const [path, item] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      const name = operation.tags?.[0] ?? "other";
      groups.set(name, [...(groups.get(name) ?? []), operationNode(document, path, method, operation)]);
    }
  }
  return [
    ...document.info.description.split("\n\n").map((text) => h("p", { class: "lead" }, prose(text))),
    ...[...groups].flatMap(([name, nodes]) => [h("h2", { class: "group" }, capital(name)), ...nodes]),
    h("h2", { class: "group" }, "Documents"),
    ...Object.entries(document.components.schemas).map(([name, schema]) => schemaNode(name, schema)),
  ];
}

function operationNode(document, path, method, operation) {
  const [about, ...more] = (operation.description ?? operation.summary).split("\n\n");
  const [kind, body] = Object.entries(operation.requestBody?.content ?? {}).at(-1) ?? [null, null];
  const bodyText = body?.schema.$ref ? reference(body.schema) : prose(operation.requestBody?.description);
  return h(
    "details",
    { class: "card operation", id: operation.operationId },
    h(
      "summary",
      {},
      h("span", { class: "method" }, method.toUpperCase()),
      h("code", {}, path),
      h("span", { class: "muted" }, prose(about)),
    ),
    more.map((text) => h("p", {}, prose(text))),
    operation.parameters && section("Parameters", table(operation.parameters.map(parameterRow))),
    body && section("Body", h("p", {}, bodyText)),
    section("Answers", table(Object.entries(operation.responses).map(answerRow), ["Status", "Document", "Meaning"])),
    snippet("Shell", curl(document, path, method, kind, body)).node,
  );
}

const section = (title, node) => [h("h3", {}, title), node];
const parameterRow = ({ name, schema, required, description, in: place }) => [
  h("code", {}, name),
  typeOf(schema),
  required ? "required" : defaultOf(schema),
  prose(description ?? place),
];

function answerRow([code, { description, content = {} }]) {
  const [kind, { schema } = {}] = Object.entries(content)[0] ?? [""];
  return [code, schema?.$ref ? reference(schema) : kind, description];
}

/** Rows under Name, Kind, Default, Meaning, in a box that scrolls where it must. */
function table(rows, heads = ["Name", "Kind", "Default", "Meaning"]) {
  return h(
    "div",
    { class: "fields", tabindex: "0", role: "region", "aria-label": heads.join(", ") },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))))),
    ),
  );
}

function schemaNode(name, { properties = {}, required = [], description }) {
  const row = ([field, schema]) => [
    h("code", {}, field),
    typeOf(schema),
    required.includes(field) ? "required" : defaultOf(schema),
    prose(schema.description ?? ""),
  ];
  return h(
    "details",
    { class: "card operation", id: name },
    h("summary", {}, h("code", {}, name), h("span", { class: "muted" }, prose(description?.split("\n\n")[0]))),
    table(Object.entries(properties).map(row)),
  );
}

const reference = ({ $ref }) => h("a", { href: `#${schemaName($ref)}`, on: { click: reveal } }, schemaName($ref));
const defaultOf = ({ default: value }) => (value === undefined || value === null ? "" : JSON.stringify(value));

/** What a value must be, with its bounds; documents are links. */
function typeOf(schema) {
  if (schema.$ref) return [reference(schema)];
  const several = schema.anyOf ?? schema.oneOf;
  const kinds = several?.filter((one) => one.type !== "null");
  if (kinds) return kinds.flatMap((one, i) => (i ? [" or ", ...typeOf(one)] : typeOf(one)));
  if (schema.enum) return [schema.enum.join(", ")];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items ?? {})];
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const bounds = [low !== undefined && ` from ${low}`, high !== undefined && ` to ${high}`].filter(Boolean);
  return [schema.const ?? schema.format ?? schema.type ?? "anything", ...bounds];
}

/** The request with its required fields only. */
function curl(document, path, method, kind, body) {
  const url = serviceAddress() + path.replace(/\{(\w+)\}/g, (_, name) => name.toUpperCase());
  const parts = [`curl -f ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${shellWord(url)}`];
  if (token() !== null) parts.push('-H "Authorization: Bearer $RAYCTSL_TOKEN"');
  if (body) parts.push(`-H ${shellWord(`Content-Type: ${kind}`)}`);
  if (kind === "application/json") parts.push(`-d ${shellWord(JSON.stringify(example(document, body.schema)))}`);
  else if (body) parts.push("--data-binary @FILE");
  return parts.join(" \\\n  ");
}

function example(document, schema) {
  const whole = schema.$ref ? document.components.schemas[schemaName(schema.$ref)] : schema;
  if (whole.type === "array") return Array(whole.minItems ?? 1).fill(example(document, whole.items));
  if (whole.type !== "object") return whole.enum?.[0] ?? whole.default ?? (whole.type === "string" ? "…" : 1);
  return Object.fromEntries((whole.required ?? []).map((name) => [name, example(document, whole.properties[name])]));
}

/** A link to a request or a document opens it. */
function reveal(event) {
  const target = event ? event.currentTarget.hash : location.hash;
  const node = document.getElementById(decodeURIComponent(target.slice(1)));
  if (node?.localName !== "details") return;
  node.open = true;
  node.scrollIntoView();
}

const holder = h("div");
document.getElementById("main").append(h("h1", {}, "API"), holder);
loading(holder, new AbortController().signal, content).then(() => reveal());
