/** One initialization: its curve, all that its card says, and how to get it. */

import { get } from "../api.js";
import { LOSS, chart } from "../charts.js";
import { facts, h, loading } from "../dom.js";
import { checksum, downloadButton } from "../files.js";
import { bytes, count, curveOf, decimal, isOwn, measured, moment, nameOf, percent, tasksOf } from "../format.js";
import { token } from "../token.js";
import { chips } from "./initializations.js";
import { pythonString, serviceAddress, shellWord, snippet } from "./snippets.js";

export function showInitialization(root, { id, signal }) {
  const holder = h("div");
  root.append(
    h("p", { class: "crumb" }, h("a", { href: "#/initializations" }, "Initializations")),
    h("h1", { class: "identifier" }, id),
    holder,
  );
  loading(holder, signal, async () =>
    content(await get(`initializations/${encodeURIComponent(id)}`, { signal }), signal),
  );
}

function content(card, signal) {
  const path = `initializations/${encodeURIComponent(card.id)}/weights`;
  return [
    h(
      "p",
      { class: "line" },
      h("span", {}, nameOf(card.method)),
      h("span", {}, nameOf(card.model)),
      moment(card.created),
    ),
    chips(tasksOf(card), 100),
    h(
      "div",
      { class: "get" },
      h(
        "div",
        { class: "buttons" },
        downloadButton(path, { name: `${card.id}.safetensors`, size: card.size, primary: true }),
        !isOwn(card) &&
          h("a", { class: "button", href: `#/finetune?initialization=${encodeURIComponent(card.id)}` }, "Fine-tune"),
      ),
      checksum(card.sha256),
    ),
    finetunes(card, signal),
    h("section", { class: "card" }, curve(card, signal)),
    h("section", { class: "card" }, h("h2", {}, "How it was made"), facts(made(card)), wholeCard(card)),
    h("section", { class: "card" }, h("h2", {}, "Use it"), snippets(card)),
  ].filter(Boolean);
}

function curve(card, signal) {
  const points = curveOf(card);
  if (points.length < 2) return h("p", { class: "muted" }, "The card has no meta-training curve.");
  const drawn = chart({
    title: "Meta-training",
    runs: [{ label: "mean loss of the tasks", colour: "accent" }],
    ...LOSS,
    unit: "inner step",
    signal,
  });
  drawn.update([points]);
  return drawn.node;
}

/** How well it fine-tunes: the jobs that started from it here, best first, beside random weights where they were tried. */
function finetunes(card, signal) {
  const holder = h("div");
  loading(holder, signal, async () => {
    const query = { initialization: card.id, status: "succeeded", limit: 100 };
    const { data } = await get("finetune", { query, signal, quiet: true });
    if (!data.length && isOwn(card)) {
      return h("p", { class: "muted" }, "Its model is its owner's: only a program that has it can fine-tune it.");
    }
    if (!data.length) {
      const start = h("a", { href: `#/finetune?initialization=${encodeURIComponent(card.id)}` }, "Fine-tune it");
      return h("p", { class: "muted" }, "Nobody has fine-tuned it here yet. ", start, " to see how well it does.");
    }
    const row = (job) => {
      const { accuracy, scratch_accuracy: scratch } = job.result;
      const gain = scratch === null ? "" : `${(100 * (accuracy - scratch)).toFixed(1)}`;
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.id}` }, job.dataset)),
        h("td", {}, count(job.progress.steps)),
        h("td", {}, percent(accuracy)),
        h("td", {}, scratch === null ? "" : percent(scratch)),
        h("td", {}, gain),
      );
    };
    const best = data.sort((a, b) => b.result.accuracy - a.result.accuracy).slice(0, 20);
    const heads = ["Dataset", "Steps", "Accuracy", "From scratch", "Difference, points"];
    const table = h(
      "table",
      {},
      h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, best.map(row)),
    );
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "How it fine-tunes" }, table);
  });
  return h("section", { class: "card" }, h("h2", {}, "How it fine-tunes"), holder);
}

function made(card) {
  return [
    ["Method", nameOf(card.method)],
    ["Model", nameOf(card.model)],
    ["Parameters", count(card.num_parameters)],
    ["Size", bytes(card.size)],
    ["Inner rate α", decimal(card.alpha)],
    ["Meta rate β", decimal(card.beta)],
    ["Inner steps K", count(card.inner_steps)],
    ["Trajectories M", count(card.trajectories)],
    ["Gradients spent", count(card.spent?.inner)],
    ["Final loss", measured(card.metrics?.final_loss)],
    ["Seed", count(card.seed)],
  ];
}

function wholeCard(card) {
  const { loss_curve: _, ...metrics } = card.metrics ?? {};
  const text = JSON.stringify({ ...card, metrics }, null, 2);
  return h("details", {}, h("summary", {}, "The whole card"), h("pre", { tabindex: "0" }, text));
}

/** Ways to fetch and load it, ready to be pasted. */
function snippets(card) {
  const base = serviceAddress();
  const { id } = card;
  const guarded = token() !== null;
  const header = guarded ? ' -H "Authorization: Bearer $RAYCTSL_TOKEN"' : "";
  const secret = guarded ? ', token=os.environ["RAYCTSL_TOKEN"]' : "";
  const os = guarded ? "import os\n\n" : "";
  const file = `${id}.safetensors`;
  const url = `${base}/initializations/${encodeURIComponent(id)}/weights`;
  const curl = `curl -f -C -${header} -o ${shellWord(file)} \\\n  ${shellWord(url)}
echo ${shellWord(`${card.sha256}  ${file}`)} | sha256sum -c`;
  const repository = pythonString(`rayctsl/${id}`);
  const hub = `${os}from huggingface_hub import hf_hub_download

path = hf_hub_download(${repository}, "phi.safetensors", endpoint=${pythonString(base)}${secret})`;
  const python = `${os}import rayctsl
from huggingface_hub import snapshot_download

folder = snapshot_download(${repository}, endpoint=${pythonString(base)}${secret})
module = rayctsl.load_initialization(folder, num_classes=10)`;
  return [
    ["Shell, resumes and verifies", curl],
    ["Hugging Face client", hub],
    ["PyTorch module", python],
  ].map(([title, text]) => snippet(title, text).node);
}
