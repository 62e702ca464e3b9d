/** Builds elements. Strings become text nodes, always: what a user wrote is never read as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** h("a", { class: "button", href: "#/jobs", on: { click } }, "Jobs"): null, false and undefined are left out. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Puts text into an element only when it changes, so that screen readers do not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows that `work` is under way, then the elements it gives, or what went wrong with a button to try again. */
export async function loading(holder, signal, work) {
  holder.setAttribute("aria-busy", "true");
  holder.replaceChildren(h("div", { class: "skeleton" }, h("span", { class: "sr" }, "Loading…")));
  try {
    const content = await work();
    if (!signal.aborted) holder.replaceChildren(...[content].flat());
  } catch (error) {
    if (!signal.aborted) holder.replaceChildren(failure(error, () => loading(holder, signal, work)));
  } finally {
    holder.removeAttribute("aria-busy");
  }
}

/** A problem as people see it. */
export function failure(error, retry = null) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("p", {}, error.message || String(error)),
    retry && h("button", { type: "button", on: { click: retry } }, "Try again"),
  );
}

/** A list with nothing in it, and what to do about it. */
export function empty(title, ...hints) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...hints);
}

/** Terms and values, those without a value left out. */
export function facts(entries) {
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    shown.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))),
  );
}
