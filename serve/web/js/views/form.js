/** The form that starts a fine-tune. */

import { get, newKey, post } from "../api.js";
import { failure, h, loading, say } from "../dom.js";
import { count } from "../format.js";

const NUMBERS = [
  // name, label, attributes, hint, advanced
  ["steps", "Steps", { min: 1, max: 100000, step: 1, value: 1000, required: true }, "1,000 is the paper's", false],
  ["train_size", "Training images", { min: 1, step: 1, placeholder: "all" }, "Drawn class by class", false],
  ["seed", "Seed", { min: 0, max: 2147483647, step: 1, value: 0, required: true }, "Same seed, same result", false],
  [
    "alpha",
    "Learning rate",
    { min: 0, max: 10, step: "any", value: 0.1, required: true },
    "Falls at 40, 70 and 90 %",
    true,
  ],
  ["batch_size", "Batch size", { min: 1, max: 1024, step: 1, value: 128, required: true }, "Images per step", true],
  ["weight_decay", "Weight decay", { min: 0, max: 1, step: "any", value: 0.0005, required: true }, "", true],
  [
    "evaluate_every",
    "Steps between points",
    { min: 1, max: 100000, step: 1, placeholder: "a twentieth" },
    "At most 200 points",
    true,
  ],
];

export function showForm(root, { query, signal }) {
  const holder = h("div");
  root.append(
    h("h1", {}, "New fine-tune"),
    h("p", { class: "lead" }, "Train an initialization on a dataset, watch it, and take the model away."),
    holder,
  );
  loading(holder, signal, async () => {
    const [datasets, newest] = await Promise.all([
      get("datasets", { signal }),
      get("initializations", { query: { limit: 100 }, signal }),
    ]);
    return form(datasets.data, newest, query, signal);
  });
}

function form(datasets, newest, query, signal) {
  const dataset = datasetSelect(datasets, query.get("dataset"));
  const initialization = initializationSelect(newest, query.get("initialization"));
  const hint = h("p", { class: "hint", id: "dataset-hint" });
  const trouble = h("div");
  const send = h("button", { class: "primary", type: "submit" }, "Start");
  const scratch = h("input", {
    type: "checkbox",
    id: "scratch",
    name: "compare_with_scratch",
    "aria-describedby": "scratch-hint",
    checked: query.get("compare_with_scratch") === "true",
  });
  const numbers = (advanced) => NUMBERS.filter((one) => one[4] === advanced).map((one) => numberField(one, query));
  const node = h(
    "form",
    { class: "card form", novalidate: true },
    h("div", { class: "field wide" }, h("label", { for: "dataset" }, "Dataset"), dataset, hint, fieldError("dataset")),
    h(
      "div",
      { class: "field wide" },
      h("label", { for: "initialization" }, "Initialization"),
      initialization,
      newest.has_more && h("p", { class: "hint" }, "The 100 newest; start an older one from its own page."),
      fieldError("initialization"),
    ),
    numbers(false),
    h(
      "div",
      { class: "check wide" },
      scratch,
      h("label", { for: "scratch" }, "Compare with scratch"),
      h("p", { class: "hint", id: "scratch-hint" }, "The same training from random weights beside it: twice the time"),
    ),
    h(
      "div",
      { class: "field wide" },
      h("label", { for: "label" }, "Label"),
      h("input", {
        id: "label",
        name: "label",
        maxlength: 200,
        placeholder: "Optional, to find the job again",
        autocomplete: "off",
        value: query.get("label") ?? "",
      }),
      fieldError("label"),
    ),
    h("details", { class: "wide" }, h("summary", {}, "More settings"), h("div", { class: "grid" }, numbers(true))),
    h("div", { class: "wide" }, trouble, h("div", { class: "buttons" }, send)),
  );

  function describe() {
    const chosen = datasets.find((one) => one.name === dataset.value);
    node.elements.train_size.max = chosen?.num_train ?? "";
    node.elements.train_size.placeholder = chosen?.num_train ? `all ${count(chosen.num_train)}` : "all";
    say(
      hint,
      chosen
        ? `${chosen.num_classes} classes, ${count(chosen.num_train)} training and ${count(chosen.num_test)} test images of ${chosen.height} × ${chosen.width}`
        : "",
    );
  }

  dataset.addEventListener("change", describe);
  describe();
  let key = newKey();
  node.addEventListener("input", () => (key = newKey()));
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    if (!check(node)) return;
    send.disabled = true;
    try {
      // The key makes a second click, or a retry after a lost answer, find the same job.
      const job = await post("finetune", { json: read(node), headers: { "idempotency-key": key }, signal });
      location.hash = `#/jobs/${job.id}`;
    } catch (error) {
      if (signal.aborted) return;
      for (const { where, message } of error.errors ?? []) mark(node, where.split(".")[1], message);
      trouble.replaceChildren(failure(error));
      send.disabled = false;
    }
  });
  return node;
}

function datasetSelect(datasets, wanted) {
  const option = (one) =>
    h("option", { value: one.name, disabled: !one.prepared, selected: one.name === wanted }, one.name);
  const ready = datasets.filter((one) => one.prepared);
  const others = datasets.filter((one) => !one.prepared);
  return h(
    "select",
    { id: "dataset", name: "dataset", required: true, "aria-describedby": "dataset-hint dataset-error" },
    h("option", { value: "" }, "Choose…"),
    h("optgroup", { label: "Ready" }, ready.map(option)),
    others.length > 0 && h("optgroup", { label: "Known, not prepared here" }, others.map(option)),
  );
}

function initializationSelect({ data }, wanted) {
  const ids = data.map((card) => card.id);
  if (wanted && !ids.includes(wanted)) ids.unshift(wanted);
  const newest = data[0] ? `The newest: ${data[0].id}` : "None yet";
  return h(
    "select",
    { id: "initialization", name: "initialization", "aria-describedby": "initialization-error" },
    h("option", { value: "" }, newest),
    ids.map((id) => h("option", { value: id, selected: id === wanted }, id)),
  );
}

function numberField([name, text, attributes, hint], query) {
  const value = query.get(name) ?? attributes.value;
  return h(
    "div",
    { class: "field" },
    h("label", { for: name }, text),
    h("input", {
      ...attributes,
      id: name,
      name,
      value,
      type: "number",
      inputmode: attributes.step === 1 ? "numeric" : "decimal",
      "aria-describedby": `${name}-hint ${name}-error`,
    }),
    h("p", { class: "hint", id: `${name}-hint` }, hint),
    fieldError(name),
  );
}

const fieldError = (name) => h("p", { class: "field-error", id: `${name}-error` });

function mark(form, name, message) {
  const field = form.elements[name];
  const place = form.querySelector(`#${CSS.escape(name ?? "")}-error`);
  if (!field || !place) return;
  place.textContent = message;
  field.setAttribute("aria-invalid", "true");
  field.closest("details")?.setAttribute("open", "");
}

/** The browser's own checks, said beside the fields; the first bad one gets the focus. */
function check(form) {
  for (const place of form.querySelectorAll(".field-error")) place.textContent = "";
  for (const field of form.elements) field.removeAttribute("aria-invalid");
  const bad = [...form.elements].filter((field) => !field.checkValidity());
  for (const field of bad)
    mark(form, field.name, field.name === "dataset" ? "Choose a dataset." : field.validationMessage);
  bad[0]?.focus();
  return bad.length === 0;
}

function read(form) {
  const { dataset, initialization, label, compare_with_scratch } = form.elements;
  const body = { dataset: dataset.value, label: label.value, compare_with_scratch: compare_with_scratch.checked };
  if (initialization.value) body.initialization = initialization.value;
  for (const [name] of NUMBERS) {
    if (form.elements[name].value !== "") body[name] = form.elements[name].valueAsNumber;
  }
  return body;
}
