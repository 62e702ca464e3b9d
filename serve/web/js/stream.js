/** Follows a job's events to their end, over broken connections: EventSource could not send the token. */

import { request } from "./api.js";

const SILENCE = 45_000; // the service speaks every 15 s; a longer silence is a dead connection
const LONGEST_WAIT = 8_000;

/** Calls on.event(name, data) for each event once, and on.connection(up) when the connection breaks or is back. */
export async function follow(jobId, signal, on) {
  let last = null;
  let failures = 0;
  while (!signal.aborted) {
    const connection = new AbortController();
    const stop = () => connection.abort();
    signal.addEventListener("abort", stop);
    let watchdog = setTimeout(stop, SILENCE);
    let retryAfter = 0;
    try {
      const headers = last === null ? {} : { "last-event-id": last };
      const response = await request(`finetune/${jobId}/events`, {
        headers,
        quiet: failures > 0,
        signal: connection.signal,
      });
      if (response.status === 204) return;
      for await (const block of blocks(response.body)) {
        clearTimeout(watchdog);
        watchdog = setTimeout(stop, SILENCE);
        if (failures) on.connection(true);
        failures = 0;
        if (block.id !== undefined) last = block.id;
        if (block.data === undefined) continue;
        on.event(block.event, JSON.parse(block.data));
        if (block.event === "end") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if ([401, 404].includes(error.status)) throw error;
      retryAfter = 1000 * (error.retryAfter ?? 0);
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
    }
    failures += 1;
    on.connection(false);
    await pause(Math.max(retryAfter, Math.min(LONGEST_WAIT, 500 * 2 ** failures)), signal);
  }
}

/** The blocks of an event stream as {event, id, data}; comments give an empty one, a sign of life. */
async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = part
        .split("\n")
        .map((line) => /^([a-z]+): ?(.*)$/.exec(line))
        .filter(Boolean);
      yield Object.fromEntries(fields.map(([, name, text]) => [name, text]));
    }
  }
}

/** Waits; at once when the browser is online again or the page is left. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, milliseconds);
    function finish() {
      clearTimeout(timer);
      window.removeEventListener("online", finish);
      signal.removeEventListener("abort", finish);
      resolve();
    }
    window.addEventListener("online", finish);
    signal.addEventListener("abort", finish);
  });
}
