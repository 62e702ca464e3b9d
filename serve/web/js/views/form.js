/** The form that starts a fine-tune; its fields come from the service's own description of the request. */

import { get, newKey, post, request } from "../api.js";
import { empty, failure, h, loading, say } from "../dom.js";
import { count, isOwn, tasksOf } from "../format.js";
import { buildFields, fieldError } from "./fields.js";
import { recipeSnippets } from "./snippets.js";

export function showForm(root, { query, signal }) {
  const holder = h("div");
  root.append(
    h("h1", {}, "New fine-tune"),
    h("p", { class: "lead" }, "Train an initialization on a dataset, watch it, and take the model away."),
    holder,
  );
  loading(holder, signal, async () => {
    const [datasets, newest, document] = await Promise.all([
      get("datasets", { signal }),
      get("initializations", { query: { limit: 100 }, signal }),
      get("openapi.json", { signal }),
    ]);
    if (!newest.data.length) return nothingYet();
    return form(datasets.data, newest, document.components.schemas.FinetuneRequest, query, signal);
  });
}

function nothingYet() {
  return empty(
    "There is no initialization to start from yet.",
    h("p", {}, "Train one into the service's storage, then come back:"),
    h("pre", { tabindex: "0" }, "python -m rayctsl.train --run-dir STORAGE/first"),
  );
}

function form(datasets, newest, schema, query, signal) {
  const dataset = datasetSelect(datasets, query.get("dataset"));
  const initialization = initializationSelect(newest, query.get("initialization"));
  const hint = h("p", { class: "hint", id: "dataset-hint" });
  const seen = h("p", { class: "hint warn", id: "seen-hint", role: "status" });
  const pictures = h("img", { class: "thumbnails", hidden: true, alt: "" });
  const trouble = h("div");
  const send = h("button", { class: "primary", type: "submit" }, "Start");
  const fields = buildFields(schema, query);
  const scratch = scratchCheck(query);
  const node = h(
    "form",
    { class: "card form", novalidate: true },
    h(
      "div",
      { class: "field wide" },
      h("label", { for: "dataset" }, "Dataset"),
      dataset,
      hint,
      pictures,
      seen,
      fieldError("dataset"),
    ),
    h(
      "div",
      { class: "field wide" },
      h("label", { for: "initialization" }, "Initialization"),
      initialization,
      newest.has_more && h("p", { class: "hint" }, "The 100 newest; start an older one from its own page."),
      fieldError("initialization"),
    ),
    fields.filter((field) => field.basic).map((field) => field.node),
    scratch.node,
    labelField(query),
    h(
      "details",
      { class: "wide" },
      h("summary", {}, "More settings"),
      h("div", { class: "grid" }, fields.filter((field) => !field.basic).map((field) => field.node)),
    ),
    h("div", { class: "wide" }, trouble, h("div", { class: "buttons" }, send)),
  );
  const read = () => readForm(node, fields, scratch, schema);
  const code = recipeSnippets(read);

  function describe() {
    const chosen = datasets.find((one) => one.name === dataset.value);
    const size = node.elements.train_size;
    if (size) {
      size.max = chosen?.num_train ?? "";
      size.placeholder = chosen?.num_train ? `all ${count(chosen.num_train)}` : "all";
    }
    say(hint, chosen ? datasetText(chosen) : "");
    showPictures(pictures, chosen, signal);
    const card = newest.data.find((one) => one.id === initialization.value) ?? newest.data[0];
    const known = chosen && tasksOf(card).some((task) => task.split("@")[0] === chosen.name.split("@")[0]);
    say(seen, known ? `${card.id} was meta-trained on ${chosen.name}: a result here says little about new data.` : "");
  }

  for (const select of [dataset, initialization]) select.addEventListener("change", describe);
  describe();
  let key = newKey();
  node.addEventListener("input", () => {
    key = newKey();
    code.update();
  });
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    if (!check(node)) return;
    send.disabled = true;
    try {
      // The key makes a second click, or a retry after a lost answer, find the same job.
      const job = await post("finetune", { json: read(), headers: { "idempotency-key": key }, signal });
      location.hash = `#/jobs/${job.id}`;
    } catch (error) {
      if (signal.aborted) return;
      for (const { where, message } of error.errors ?? []) mark(node, where.split(".")[1], message);
      trouble.replaceChildren(failure(error));
      send.disabled = false;
    }
  });
  return [node, code.node];
}

/** Fetched, not linked: an image's address cannot carry a key. */
async function showPictures(image, dataset, signal) {
  image.hidden = true;
  if (!dataset?.prepared) return;
  try {
    const response = await request(`datasets/${encodeURIComponent(dataset.name)}/thumbnail`, { signal, quiet: true });
    if (response.status === 204) return;
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(await response.blob());
    image.alt = `Images of the first classes of ${dataset.name}`;
    image.hidden = false;
  } catch {
    // Without pictures the form is complete.
  }
}

const datasetText = (one) =>
  `${one.num_classes} classes, ${count(one.num_train)} training and ${count(one.num_test)} test images of ` +
  `${one.height} × ${one.width}`;

function scratchCheck(query) {
  const input = h("input", {
    type: "checkbox",
    id: "scratch",
    name: "compare_with_scratch",
    "aria-describedby": "scratch-hint",
    checked: query.get("compare_with_scratch") === "true",
  });
  const node = h(
    "div",
    { class: "check wide" },
    input,
    h("label", { for: "scratch" }, "Compare with scratch"),
    h("p", { class: "hint", id: "scratch-hint" }, "The same training from random weights beside it: twice the time"),
  );
  return { node, read: () => input.checked };
}

function labelField(query) {
  return h(
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
  );
}

function datasetSelect(datasets, wanted) {
  const option = (one) =>
    h("option", { value: one.name, disabled: !one.prepared, selected: one.name === wanted }, one.name);
  const ready = datasets.filter((one) => one.prepared);
  const others = datasets.filter((one) => !one.prepared);
  return h(
    "select",
    { id: "dataset", name: "dataset", required: true, "aria-describedby": "dataset-hint seen-hint dataset-error" },
    h("option", { value: "" }, "Choose…"),
    h("optgroup", { label: "Ready" }, ready.map(option)),
    others.length > 0 && h("optgroup", { label: "Known, not prepared here" }, others.map(option)),
  );
}

/** The newest is the default and stands first, once. */
function initializationSelect({ data }, wanted) {
  const ids = data.filter((card) => !isOwn(card)).map((card) => card.id);
  if (wanted && !ids.includes(wanted)) ids.push(wanted);
  return h(
    "select",
    { id: "initialization", name: "initialization", "aria-describedby": "initialization-error" },
    ids.map((id, place) =>
      h("option", { value: id, selected: id === wanted }, place === 0 ? `${id} (the newest)` : id),
    ),
  );
}

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

/** The request: what differs from the service's defaults, and what was chosen. */
function readForm(form, fields, scratch, schema) {
  const { dataset, initialization, label } = form.elements;
  const body = { dataset: dataset.value, initialization: initialization.value };
  for (const { name, read } of fields) {
    const value = read();
    const same = JSON.stringify(value) === JSON.stringify(schema.properties[name].default);
    if (value !== undefined && !Number.isNaN(value) && (!same || name === "steps")) body[name] = value;
  }
  if (scratch.read()) body.compare_with_scratch = true;
  if (label.value) body.label = label.value;
  return body;
}
