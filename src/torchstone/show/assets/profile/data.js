// From the page's data, or from bytes that were fetched, to typed arrays.

const HEAD_LENGTH = 4;

export async function decode(text) {
  const outer = JSON.parse(text);
  if (outer.gzip === undefined) return expanded(outer.head, fromBase64(outer.body));
  return unpack(await inflate(fromBase64(outer.gzip)));
}

// Head and body in one: the head's length, the head as JSON, the columns.
export function unpack(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const head = bytes.subarray(HEAD_LENGTH, HEAD_LENGTH + length);
  const text = new TextDecoder().decode(head);
  return expanded(JSON.parse(text), bytes.subarray(HEAD_LENGTH + length));
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Every description of a column replaced by its values; lists of texts are left as they are.
function expanded(head, body) {
  const visit = (value) => {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map(visit);
    if (value.column !== undefined) return column(value.column, body);
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, visit(item)]));
  };
  return { ...visit({ ...head, strings: null }), strings: head.strings };
}

function column(what, body) {
  if (what.kind === "floats") return floats(what, body);
  const { at, count, width, low } = what;
  // Plane by plane: each loop is so simple that it runs at the speed of memory.
  const values = new Float64Array(count).fill(low);
  for (let plane = 0; plane < width; plane += 1) {
    const bytes = body.subarray(at + plane * count, at + (plane + 1) * count);
    const weight = 256 ** plane;
    for (let i = 0; i < count; i += 1) values[i] += bytes[i] * weight;
  }
  if (what.kind === "steps") for (let i = 1; i < count; i += 1) values[i] += values[i - 1];
  return what.form === "i4" ? Int32Array.from(values) : values;
}

function floats({ at, count }, body) {
  const bytes = new Uint8Array(count * 8);
  for (let plane = 0; plane < 8; plane += 1) {
    const start = at + plane * count;
    for (let i = 0; i < count; i += 1) bytes[i * 8 + plane] = body[start + i];
  }
  return new Float64Array(bytes.buffer);
}
