/** Packs files of a folder into a tar archive: a plain header of 512 bytes a file, nothing compressed. */

const BLOCK = 512;

/** A Blob of { path, file } entries; the files themselves are read only when the archive is sent. */
export function packTar(entries) {
  const parts = [];
  for (const { path, file } of entries) {
    parts.push(header(path, file.size), file, new Uint8Array((BLOCK - (file.size % BLOCK)) % BLOCK));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

function header(path, size) {
  const bytes = new Uint8Array(BLOCK);
  const write = (text, at) => bytes.set(new TextEncoder().encode(text), at);
  const [prefix, name] = split(path);
  write(name, 0);
  write("0000644\0" + "0000000\0" + "0000000\0", 100);
  write(`${size.toString(8).padStart(11, "0")}\0${"0".repeat(11)}\0`, 124);
  write("        0", 148);
  write("ustar\0" + "00", 257);
  write(prefix, 345);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return bytes;
}

/** A path as tar keeps it: a name of at most 100 bytes, and up to 155 bytes of folders before it. */
function split(path) {
  const length = (text) => new TextEncoder().encode(text).length;
  if (length(path) <= 100) return ["", path];
  const parts = path.split("/");
  for (let at = 1; at < parts.length; at++) {
    const [prefix, name] = [parts.slice(0, at).join("/"), parts.slice(at).join("/")];
    if (length(prefix) <= 155 && length(name) <= 100) return [prefix, name];
  }
  throw new Error(`The name ${path.slice(0, 60)}… is too long.`);
}
