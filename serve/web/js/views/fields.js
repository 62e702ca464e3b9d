/** Form fields made from the OpenAPI document's description of a request: what the service takes, the form offers. */

import { h } from "../dom.js";

/** Basic fields first and in this order; every other one is under “More settings”. */
const BASIC = ["steps", "train_size", "seed"];
const OWN = ["dataset", "initialization", "label", "compare_with_scratch", "webhook"]; // the form has places of its own for these

/** "Weight Decay", as the document writes it, is “Weight decay” here. */
const sentenceCase = (text) => text.charAt(0) + text.slice(1).replace(/ ([A-Z])(?=[a-z])/g, (all) => all.toLowerCase());

/** What kind of value a property takes: {type, minimum, maximum, enum, …} without the null of optional ones. */
function kindOf(property) {
  return { ...property, ...(property.anyOf ?? []).find((kind) => kind.type !== "null") };
}

/** The fields of a request schema as {name, basic, node, read, reset}. */
export function buildFields(schema, query) {
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties).filter((name) => !OWN.includes(name));
  const order = (name) => (BASIC.includes(name) ? BASIC.indexOf(name) : BASIC.length);
  return names
    .sort((a, b) => order(a) - order(b))
    .map((name) => ({
      name,
      basic: BASIC.includes(name),
      ...build(name, kindOf(schema.properties[name]), required, query),
    }));
}

function build(name, kind, required, query) {
  const given = query.get(name);
  if (kind.enum) return choice(name, kind, given);
  if (kind.type === "boolean") return check(name, kind, given);
  if (kind.type === "integer" || kind.type === "number") return number(name, kind, given);
  return text(name, kind, given);
}

/** What the document says of a field; its marks for code mean nothing to people. */
const hintOf = (name, kind) => h("p", { class: "hint", id: `${name}-hint` }, (kind.description ?? "").replaceAll("`", ""));

function wrap(name, kind, input) {
  const hint = hintOf(name, kind);
  return h("div", { class: "field" }, h("label", { for: name }, label(kind, name)), input, hint, fieldError(name));
}

/** What people call a field. */
export const label = (kind, name) => sentenceCase(kind?.title ?? name);
const described = (name) => `${name}-hint ${name}-error`;
export const fieldError = (name) => h("p", { class: "field-error", id: `${name}-error` });

function number(name, kind, given) {
  const whole = kind.type === "integer";
  const input = h("input", {
    id: name,
    name,
    type: "number",
    inputmode: whole ? "numeric" : "decimal",
    min: kind.minimum ?? kind.exclusiveMinimum,
    max: kind.maximum ?? (kind.exclusiveMaximum !== undefined ? kind.exclusiveMaximum - (whole ? 1 : 0) : undefined),
    step: whole ? 1 : "any",
    value: given ?? kind.default,
    required: kind.default !== undefined && kind.default !== null,
    placeholder: "automatic",
    "aria-describedby": described(name),
  });
  return { node: wrap(name, kind, input), read: () => (input.value === "" ? undefined : input.valueAsNumber) };
}

function choice(name, kind, given) {
  const wanted = given ?? kind.default;
  const options = kind.enum.map((value) => h("option", { value, selected: value === wanted }, value));
  const input = h("select", { id: name, name, "aria-describedby": described(name) }, options);
  return { node: wrap(name, kind, input), read: () => input.value };
}

function check(name, kind, given) {
  const checked = given === null ? Boolean(kind.default) : given === "true";
  const input = h("input", { type: "checkbox", id: name, name, checked, "aria-describedby": `${name}-hint` });
  const hint = hintOf(name, kind);
  const node = h("div", { class: "check wide" }, input, h("label", { for: name }, label(kind, name)), hint);
  return { node, read: () => input.checked };
}

/** Lists of numbers are written with commas; anything else is plain text. */
function text(name, kind, given) {
  const list = kind.type === "array";
  const value = given ?? (list ? (kind.default ?? []).join(", ") : kind.default);
  const pattern = list ? "\\s*[0-9.eE+\\-]+(\\s*,\\s*[0-9.eE+\\-]+)*\\s*" : undefined;
  const input = h("input", { id: name, name, value, pattern, "aria-describedby": described(name), autocomplete: "off" });
  const read = () => {
    if (!list) return input.value || undefined;
    return input.value.trim() ? input.value.split(",").map(Number) : [];
  };
  return { node: wrap(name, kind, input), read };
}
