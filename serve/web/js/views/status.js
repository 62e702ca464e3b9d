/** What the list of jobs and the page of one share: status, progress, cancel. */

import { post } from "../api.js";
import { h, say } from "../dom.js";
import { count } from "../format.js";

export const hasEnded = (job) => ["succeeded", "failed", "cancelled"].includes(job.status);
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export function statusPill() {
  const node = h("span", { class: "status" });
  return {
    node,
    update(job) {
      node.dataset.status = job.status;
      say(node, capital(job.status));
    },
  };
}

export function progressBar(label) {
  const bar = h("progress", { max: 1, value: 0, "aria-label": label });
  const text = h("span", { class: "muted steps" });
  const node = h("div", { class: "progress" }, bar, text);
  return {
    node,
    update(job) {
      const { step, steps } = job.progress;
      bar.value = steps ? step / steps : 0;
      node.hidden = job.status === "succeeded";
      say(text, `${count(step)} of ${count(steps)} steps`);
    },
  };
}

/** Asks once more before it throws work away; `onJob` gets the job as it is then. */
export function cancelControl(id, onJob) {
  const ask = h("button", { type: "button" }, "Cancel job");
  const yes = h("button", { type: "button", class: "danger" }, "Yes, cancel");
  const no = h("button", { type: "button" }, "Keep it");
  const trouble = h("span", { class: "field-error", role: "alert" });
  const sure = h("span", { class: "buttons", hidden: true }, yes, no);
  const node = h("span", { class: "cancel" }, ask, sure, trouble);

  function show(asking) {
    ask.hidden = asking;
    sure.hidden = !asking;
    (asking ? yes : ask).focus();
  }

  ask.addEventListener("click", () => show(true));
  no.addEventListener("click", () => show(false));
  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      onJob(await post(`finetune/${id}/cancel`));
    } catch (error) {
      trouble.textContent = error.message;
    } finally {
      yes.disabled = false;
      if (!node.hidden) show(false);
    }
  });
  return {
    node,
    update(job) {
      node.hidden = hasEnded(job) || job.status === "cancelling";
    },
  };
}
