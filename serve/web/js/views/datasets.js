/** Own images: drop a folder or an archive, see what was understood, start a fine-tune on it. */

import { get, request } from "../api.js";
import { failure, h, loading, say } from "../dom.js";
import { count } from "../format.js";
import { sendArchive } from "../sending.js";
import { pause } from "../stream.js";
import { packTar } from "../tar.js";

const POLL_MS = 1000;
const ARCHIVE = /\.(zip|npz|tar|tar\.gz|tgz|tar\.bz2|tar\.xz)$/i;

const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export function showDatasets(root, { id, signal }) {
  if (id) return showDataset(root, id, signal);
  const list = h("div");
  root.append(
    h("h1", {}, "Your images"),
    h("p", { class: "lead" }, "One folder a class, its name the class. Drop the folder, or a zip, tar or npz of it."),
    dropZone(signal),
    h("h2", {}, "Datasets"),
    list,
  );
  loading(list, signal, async () => {
    const { data } = await get("datasets", { signal });
    const own = data.filter((one) => one.source === "imported");
    if (!own.length) return h("p", { class: "muted" }, "No images have been sent yet.");
    return h("ul", { class: "plain" }, own.map((one) =>
      h("li", {}, h("a", { href: `#/datasets/${one.name}` }, one.name),
        ` · ${count(one.num_train + one.num_test)} images, ${count(one.num_classes)} classes`)));
  });
}

function dropZone(signal) {
  const status = h("p", { class: "hint", role: "status", id: "upload-status" });
  const bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Sent" });
  const trouble = h("div");
  const name = h("input", { id: "upload-name", name: "name", autocomplete: "off", pattern: "[a-z0-9](-?[a-z0-9_])*", maxlength: "48" });
  const size = h("input", { id: "upload-size", name: "size", type: "number", min: "8", max: "512", placeholder: "automatic", "aria-describedby": "upload-size-hint" });
  const folder = h("input", { type: "file", id: "upload-folder", webkitdirectory: true, multiple: true, hidden: true });
  const file = h("input", { type: "file", id: "upload-file", accept: ".zip,.npz,.tar,.gz,.tgz,.bz2,.xz", hidden: true });

  async function send(chosen) {
    trouble.replaceChildren();
    try {
      const { blob, title, arrays = false } = await chosen();
      if (!name.value) name.value = title.toLowerCase().replace(/[^a-z0-9_]+/g, "-").slice(0, 48).replace(/^[-_]+|-+$/g, "") || "images";
      zone.setAttribute("aria-busy", "true");
      const onBytes = (sent, all) => {
        bar.hidden = false;
        bar.value = all ? sent / all : 1;
        say(status, `Sending: ${mib(sent)} of ${mib(all)} MiB`);
      };
      onBytes(0, blob.size);
      await sendArchive(name.value, blob, { size: arrays ? null : size.value }, { signal, onBytes });
      location.hash = `#/datasets/${name.value}`;
    } catch (error) {
      say(status, "");
      bar.hidden = true;
      if (error.name !== "AbortError") trouble.replaceChildren(failure(error));
    } finally {
      zone.removeAttribute("aria-busy");
    }
  }

  const zone = h(
    "div",
    { class: "card form dropzone", on: { dragover, dragleave, drop } },
    h("div", { class: "field wide" }, h("p", { class: "empty-title" }, "Drop a folder or an archive here"),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "primary", on: { click: () => folder.click() } }, "Choose a folder"),
        h("button", { type: "button", on: { click: () => file.click() } }, "Choose an archive")),
      folder, file, bar, status, trouble),
    h("div", { class: "field" }, h("label", { for: "upload-name" }, "Name"), name, h("p", { class: "hint" }, "a-z, 0-9, - and _; the folder's when empty")),
    h("div", { class: "field" }, h("label", { for: "upload-size" }, "Pixels a side"), size, h("p", { class: "hint", id: "upload-size-hint" }, "the pictures' own, at most 128, when empty")),
  );
  folder.addEventListener("change", () => {
    const files = [...folder.files];
    if (files.length) send(() => packed(files.map((each) => ({ path: each.webkitRelativePath, file: each }))));
  });
  file.addEventListener("change", () => file.files.length && send(() => archived(file.files[0])));
  // A near miss must not make the browser leave the page for the file.
  for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault(), { signal });

  function dragover(event) {
    event.preventDefault();
    zone.dataset.over = "true";
  }
  function dragleave() {
    delete zone.dataset.over;
  }
  function drop(event) {
    event.preventDefault();
    dragleave();
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const single = event.dataTransfer.files[0];
    if (entries.some((entry) => entry.isDirectory)) send(async () => packed((await Promise.all(entries.map((entry) => walk(entry)))).flat()));
    else if (single && ARCHIVE.test(single.name)) send(() => archived(single));
    else trouble.replaceChildren(failure(new Error("Drop a folder of class folders, or a zip, tar or npz.")));
  }
  return zone;
}

function archived(file) {
  return { blob: file, title: file.name.replace(ARCHIVE, ""), arrays: /npz$/i.test(file.name) };
}

function packed(entries) {
  const seen = entries.filter(({ path }) => !path.split("/").some((part) => part.startsWith(".")));
  return { blob: packTar(seen), title: seen[0]?.path.split("/")[0] ?? "images" };
}

/** Every file below a dropped entry; a folder is read in several goes. */
async function walk(entry, before = "") {
  const path = before + entry.name;
  if (entry.isFile) return [{ path, file: await new Promise((done, fail) => entry.file(done, fail)) }];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) break;
    found.push(...some);
  }
  return (await Promise.all(found.map((child) => walk(child, `${path}/`)))).flat();
}

function showDataset(root, name, signal) {
  const holder = h("div");
  root.append(h("h1", {}, name), holder);
  loading(holder, signal, async () => {
    const dataset = await settle(name, holder, signal);
    if (dataset.status === "failed") {
      return [
        failure(new Error(sentence(dataset.error))),
        h("p", { class: "buttons" }, h("a", { class: "button", href: "#/datasets" }, "Send it again")),
      ];
    }
    const { num_train: train, num_test: test, height, width } = dataset.dataset;
    const sheet = await request(`datasets/${name}/sheet`, { signal });
    const picture = sheet.status !== 204 && URL.createObjectURL(await sheet.blob());
    signal.addEventListener("abort", () => URL.revokeObjectURL(picture));
    return [
      h("p", { class: "lead" }, `${count(train)} training and ${count(test)} test images of ${dataset.class_names.length} classes, ${height} × ${width}`),
      h("p", { class: "buttons" },
        h("a", { class: "button primary", href: `#/finetune?dataset=${name}` }, "Fine-tune on it"),
        h("a", { class: "button", href: `#/comparisons?dataset=${name}` }, "Compare initializations on it"),
        h("button", { type: "button", on: { click: () => remove(name, holder) } }, "Delete")),
      ...(picture ? [contactSheet(name, picture)] : []),
    ];
  });
}

function contactSheet(name, picture) {
  return h("div", { class: "sheet-box", tabindex: "0", role: "region", "aria-label": "Contact sheet" },
    h("img", { class: "sheet", src: picture, alt: `Images of ${name} by class` }));
}

async function settle(name, holder, signal) {
  for (;;) {
    const dataset = await get(`datasets/${name}`, { signal });
    if (["ready", "failed"].includes(dataset.status)) return dataset;
    holder.replaceChildren(h("p", { role: "status" }, dataset.stage ? `Importing: ${dataset.stage}…` : "Importing…"));
    await pause(POLL_MS, signal);
  }
}

async function remove(name, holder) {
  try {
    await request(`datasets/${name}`, { method: "DELETE" });
    location.hash = "#/datasets";
  } catch (error) {
    holder.prepend(failure(error));
  }
}
