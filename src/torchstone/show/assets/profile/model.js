// A decoded profile with the questions that every view asks of it.

import { Tree } from "./tree.js";

// An op's group for colours: its namespace.
function groupOfOp(name, kind) {
  const end = name.indexOf("::");
  return end > 0 ? `${name.slice(0, end)}::` : `${kind}s`;
}

// The group of a file: the package or the directory that it belongs to.
function groupOfFile(file) {
  if (!file || file === "~" || file.startsWith("<")) return "built-in";
  const parts = file.split(/[\\/]/).filter((part) => part !== "");
  const home = parts.findLastIndex((part) => part === "site-packages" || part === "dist-packages");
  if (home >= 0 && home + 1 < parts.length) return parts[home + 1].replace(/\.pyc?$/, "");
  if (parts.some((part) => /^python3\.\d+$/.test(part))) return "standard library";
  if (parts.includes("<frozen importlib._bootstrap>")) return "standard library";
  return parts.length > 1 ? parts[parts.length - 2] : parts[0];
}

const BUILT_IN = [/^<built-in (?:method|function) (.+)>$/, /^\{built-in (?:method|function) (.+)\}$/];
const METHOD = /^[<{]method '(.+)' of '(.+)' objects[>}]$/;

// A built-in function by the end of its name: a narrow column would cut it and leave what all share.
function bare(name) {
  const method = METHOD.exec(name);
  const found = method ? `${method[2]}.${method[1]}` : BUILT_IN.map((form) => form.exec(name)?.[1]).find(Boolean);
  return found ? found.split(".").slice(-2).join(".") : name;
}

export class Model {
  constructor(raw, strings) {
    this.raw = raw;
    this.strings = strings;
    this.frames = raw.frames;
    this.count = raw.frames.name.length;
    this.threads = raw.threads;
    this.found = new Map();
  }

  get label() {
    return this.raw.label || this.raw.id;
  }

  name(frame) {
    return frame < 0 ? "?" : this.strings[this.frames.name[frame]];
  }

  // The name for a place that has little room; `place` says that it is built in.
  shortName(frame) {
    return this.kind(frame) === "native" ? bare(this.name(frame)) : this.name(frame);
  }

  // The name in a box: with its place where other functions have the same name, as many a `forward`.
  boxName(frame) {
    if (frame < 0) return "?";
    const place = this.line(frame) ? `${this.file(frame).split(/[\\/]/).pop()}:${this.line(frame)}` : "";
    return place && this.repeated(frame) ? `${this.name(frame)} (${place})` : this.name(frame);
  }

  repeated(frame) {
    if (!this.sameName) {
      this.sameName = new Map();
      for (const name of this.frames.name) this.sameName.set(name, (this.sameName.get(name) || 0) + 1);
    }
    return this.sameName.get(this.frames.name[frame]) > 1;
  }

  file(frame) {
    return frame < 0 ? "" : this.strings[this.frames.file[frame]];
  }

  line(frame) {
    return frame < 0 ? 0 : this.frames.line[frame];
  }

  kind(frame) {
    return frame < 0 ? "root" : this.strings[this.frames.kind[frame]];
  }

  place(frame) {
    const file = this.file(frame);
    const line = this.line(frame);
    if (line) return `${file}:${line}`;
    return file === "~" || (!file && bare(this.name(frame)) !== this.name(frame)) ? "built-in" : file;
  }

  // The last two parts of the path: enough to know it by.
  shortPlace(frame) {
    const parts = this.place(frame).split(/[\\/]/);
    return parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : parts.join("/");
  }

  threadName(thread) {
    const known = this.threads[thread];
    if (!known) return `thread ${thread}`;
    return (known.name || `thread ${known.id || thread}`) + (known.critical ? " · critical" : "");
  }

  once(key, make) {
    if (!this.found.has(key)) this.found.set(key, make());
    return this.found.get(key);
  }

  // Text to search in, of every frame.
  get haystack() {
    return this.once("haystack", () =>
      Array.from({ length: this.count }, (_, i) => `${this.name(i)}\n${this.place(i)}`.toLowerCase()),
    );
  }

  // 1 for each frame whose name or place has the words in it; null for an empty query.
  matches(query) {
    const wanted = query.trim().toLowerCase();
    if (!wanted) return null;
    return Uint8Array.from(this.haystack, (text) => (text.includes(wanted) ? 1 : 0));
  }

  get groups() {
    return this.once("groups", () => {
      const files = new Map();
      return Array.from({ length: this.count }, (_, i) => {
        const kind = this.kind(i);
        if (kind === "op" || kind === "kernel") return groupOfOp(this.name(i), kind);
        if (kind !== "python" && kind !== "native") return kind;
        const file = this.frames.file[i];
        if (!files.has(file)) files.set(file, groupOfFile(this.strings[file]));
        return files.get(file);
      });
    });
  }

  get kinds() {
    return this.once("kinds", () => Array.from({ length: this.count }, (_, i) => this.kind(i)));
  }

  get tree() {
    const label = this.label;
    return this.once("tree", () => (this.raw.tree ? new Tree(this.raw.tree, this, label) : null));
  }

  get peakTree() {
    const peak = this.raw.memory?.at_peak;
    return this.once("peak", () => (peak ? new Tree(peak, this, "at the peak") : null));
  }

  // How many samples a weight stands for; 0 where nothing was sampled.
  samplesIn(tree, weight) {
    const taken = this.raw.sampling?.samples ?? 0;
    if (tree.unit === "samples") return taken && weight;
    return tree.unit === "seconds" && tree.total[0] > 0 ? (taken * weight) / tree.total[0] : 0;
  }
}
