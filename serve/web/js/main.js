/** The page: which view an address shows, and the service's health beside it. */

import { get } from "./api.js";
import { empty, h, say } from "./dom.js";
import { forgetToken, token } from "./token.js";
import { showDatasets } from "./views/datasets.js";
import { showComparison } from "./views/compare.js";
import { showComparisons } from "./views/comparison.js";
import { showForm } from "./views/form.js";
import { showInitialization } from "./views/initialization.js";
import { showInitializations } from "./views/initializations.js";
import { showJob } from "./views/job.js";
import { showJobs } from "./views/jobs.js";

const HEALTH_EVERY = 10_000;
const ROUTES = [
  [/^\/?$/, showInitializations, "initializations"],
  [/^\/initializations\/?$/, showInitializations, "initializations"],
  [/^\/initializations\/([^/]+)$/, showInitialization, "initializations"],
  [/^\/jobs\/?$/, showJobs, "jobs"],
  [/^\/jobs\/([^/]+)$/, showJob, "jobs"],
  [/^\/datasets\/?$/, showDatasets, "datasets"],
  [/^\/datasets\/([^/]+)$/, showDatasets, "datasets"],
  [/^\/compare\/?$/, showComparison, "jobs"],
  [/^\/comparisons\/?$/, showComparisons, "jobs"],
  [/^\/comparisons\/([^/]+)$/, showComparisons, "jobs"],
  [/^\/finetune\/?$/, showForm, "finetune"],
];

const main = document.getElementById("main");
let shown = new AbortController();

function route() {
  shown.abort();
  shown = new AbortController();
  const [path, search = ""] = location.hash.slice(1).split("?");
  const [found, view, section] = ROUTES.find(([pattern]) => pattern.test(path)) ?? [null, showNothing, ""];
  for (const link of document.querySelectorAll("[data-section]")) {
    if (link.dataset.section === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  const id = found ? decode(found.exec(path)[1] ?? "") : "";
  view(main, { id, query: new URLSearchParams(search), signal: shown.signal });
  retitle();
}

/** The tab says what the page shows, also once a job's own name is known. */
function retitle() {
  const title = `${main.querySelector("h1")?.textContent ?? ""} · rayctsl`;
  if (document.title !== title) document.title = title;
}

new MutationObserver(retitle).observe(main, { childList: true, subtree: true, characterData: true });

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showNothing(root) {
  const back = h("p", {}, h("a", { href: "#/initializations" }, "All initializations"));
  root.append(h("h1", {}, "Nothing here"), empty("There is no such page.", back));
}

async function lookAtHealth() {
  const health = document.getElementById("health");
  try {
    const { status, ray, reasons } = await get("readyz", { quiet: true });
    health.dataset.state = status === "ok" ? "up" : "down";
    health.title = (reasons ?? []).join(" ");
    say(health, status === "ok" ? "Ready" : ray === "up" ? "Degraded" : "Jobs wait for Ray");
  } catch {
    health.dataset.state = "lost";
    say(health, "Unreachable");
  }
}

window.addEventListener("hashchange", () => {
  route();
  window.scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
// The address after # is the view, so the usual skip link would leave it.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
const forget = document.getElementById("forget");
forget.hidden = token() === null;
forget.addEventListener("click", forgetToken);

route();
lookAtHealth();
setInterval(() => document.hidden || lookAtHealth(), HEALTH_EVERY);
document.addEventListener("visibilitychange", () => document.hidden || lookAtHealth());
