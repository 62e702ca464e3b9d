/** Sends an archive piece by piece, so that it can be watched, and goes on after a cut connection. */

import { get, request } from "./api.js";
import { pause } from "./stream.js";

const PIECE = 4 * 2 ** 20;
const MOST_FAILURES = 5;

/** onBytes(sent, all) after every piece. */
export async function sendArchive(name, blob, query, { signal, onBytes }) {
  let start = 0;
  let failures = 0;
  do {
    const end = Math.min(start + PIECE, blob.size);
    const headers = { "content-type": "application/octet-stream" };
    if (blob.size) headers["content-range"] = `bytes ${start}-${end - 1}/${blob.size}`;
    try {
      const body = blob.slice(start, end);
      await request("datasets", { method: "POST", query: { name, ...query }, body, headers, signal });
      [start, failures] = [end, 0];
    } catch (error) {
      if (error.status !== 0 || (failures += 1) > MOST_FAILURES) throw error;
      await pause(500 * 2 ** failures, signal);
      start = await received(name, blob.size, signal);
    }
    onBytes(start, blob.size);
  } while (start < blob.size);
}

async function received(name, size, signal) {
  try {
    const there = await get(`datasets/${name}`, { signal });
    return there.status === "receiving" ? (there.total === size ? there.received : 0) : size;
  } catch {
    return 0;
  }
}
