/** Talks to the service. Errors become a Problem whose message is the service's own sentence. */

import { askForToken, token } from "./token.js";

export class Problem extends Error {
  constructor(message, status = 0, errors = [], retryAfter = 0) {
    super(message);
    Object.assign(this, { status, errors, retryAfter });
  }
}

/** The address of a path of the service, wherever the page itself is mounted. */
export function address(path, query = {}) {
  const url = new URL(path, new URL(".", document.baseURI));
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url.href;
}

/** A response that went well. With `quiet` nobody is asked for a token: for what the page does by itself. */
export async function request(path, { query, json, body, headers = {}, quiet = false, ...options } = {}) {
  for (;;) {
    const sent = token();
    const all = { ...headers, ...(sent && { authorization: `Bearer ${sent}` }) };
    if (json !== undefined) all["content-type"] = "application/json";
    const content = json === undefined ? body : JSON.stringify(json);
    let response;
    try {
      response = await fetch(address(path, query), { ...options, headers: all, body: content });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The service does not answer.");
    }
    if (response.ok) return response;
    const wantsToken = response.status === 401 && !quiet;
    if (wantsToken && (token() !== sent || (await askForToken(sent !== null)))) continue;
    throw await readProblem(response);
  }
}

export async function get(path, options) {
  return (await request(path, options)).json();
}

export async function post(path, options) {
  return (await request(path, { method: "POST", ...options })).json();
}

async function readProblem(response) {
  const problem = await response.json().catch(() => ({}));
  const detail = problem.detail || `The service answered ${response.status}.`;
  return new Problem(detail, response.status, problem.errors ?? [], Number(response.headers.get("retry-after")) || 0);
}

/** A key that makes sending the same request twice harmless. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
