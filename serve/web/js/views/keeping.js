/** What becomes of a job that has ended: give its model a name, read its log, delete it. */

import { post, request } from "../api.js";
import { failure, h, say } from "../dom.js";

export function keeping(job) {
  const path = `finetune/${job.id}`;
  const trouble = h("div");
  const said = h("p", { class: "hint", role: "status" });
  const log = h("pre", { class: "log", tabindex: "0", hidden: true });
  const act = (work) => async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    try {
      await work();
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  };
  const read = h("button", { type: "button", on: { click: act(showLog) } }, "Show the log");
  async function showLog() {
    log.textContent = (await (await request(`${path}/log`)).text()) || "Nothing was said.";
    log.hidden = false;
    read.hidden = true;
  }
  const remove = twice("Delete job", "Yes, delete it all", act(async () => {
    await request(path, { method: "DELETE" });
    location.hash = "#/jobs";
  }));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Keep or delete"),
    job.result?.weights.url && publishForm(path, act, said),
    said,
    trouble,
    h("p", { class: "buttons" }, read, remove),
    log,
  );
}

function publishForm(path, act, said) {
  const name = h("input", { id: "publish-name", required: true, pattern: "[a-z0-9][a-z0-9._\\-]{0,95}", autocomplete: "off", placeholder: "flowers-v1" });
  const publish = act(async () => {
    const made = await post(`${path}/publish`, { json: { name: name.value } });
    say(said, `Published as ${made.repository}: rayctsl pull, or any Hugging Face client with this service as endpoint, fetches it.`);
  });
  return h(
    "form",
    { class: "publish", on: { submit: publish } },
    h("label", { for: "publish-name" }, "Publish the model under a name; it stays when the job goes"),
    h("div", { class: "buttons" }, name, h("button", { type: "submit" }, "Publish")),
  );
}

/** A button that asks once more, and forgets that it did when one turns away. */
export function twice(label, sure, work) {
  const ask = h("button", { type: "button" }, label);
  const yes = h("button", { type: "button", class: "danger", hidden: true }, sure);
  function show(asking) {
    ask.hidden = asking;
    yes.hidden = !asking;
    if (asking) yes.focus();
  }
  ask.addEventListener("click", () => show(true));
  yes.addEventListener("blur", () => show(false));
  yes.addEventListener("click", async (event) => {
    await work(event);
    show(false);
  });
  return h("span", {}, ask, yes);
}
