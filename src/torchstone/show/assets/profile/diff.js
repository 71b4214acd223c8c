// Two profiles against each other: what grew is red, what shrank is blue.

import { changeIndex, STEPS } from "./colour.js";
import { choice, make, refill, searchBox, switcher } from "./dom.js";
import { Table } from "./table.js";
import { Tree } from "./tree.js";
import { mountTree } from "./tree_view.js";
import { formatShare, formatSigned, formatter } from "./units.js";

const SEPARATOR = "\u0000";
const SAME = 1e-9;

// One set of frames for both: a function is the same by name, file and kind, since lines move.
class Joined {
  constructor(base, other) {
    this.sources = [base, other];
    this.known = new Map();
    this.frames = [];
    this.maps = this.sources.map((model) => {
      const map = new Int32Array(model.count);
      for (let i = 0; i < model.count; i += 1) map[i] = this.add(model, i);
      return map;
    });
    this.count = this.frames.length;
    this.label = `${base.label} → ${other.label}`;
    this.threads = [];
  }

  add(model, frame) {
    const key = [model.name(frame), model.file(frame), model.kind(frame)].join(SEPARATOR);
    if (!this.known.has(key)) {
      this.known.set(key, this.frames.length);
      this.frames.push([model, frame]);
    }
    return this.known.get(key);
  }

  ask(what, frame) {
    const [model, own] = this.frames[frame];
    return model[what](own);
  }

  name(frame) {
    return this.ask("name", frame);
  }

  boxName(frame) {
    return this.ask("boxName", frame);
  }

  place(frame) {
    return this.ask("place", frame);
  }

  shortPlace(frame) {
    return this.ask("shortPlace", frame);
  }

  kind(frame) {
    return this.ask("kind", frame);
  }

  threadName() {
    return "";
  }

  matches(query) {
    const wanted = query.trim().toLowerCase();
    if (!wanted) return null;
    return Uint8Array.from(this.frames, ([model, frame]) => (model.haystack[frame].includes(wanted) ? 1 : 0));
  }

  samplesIn() {
    return 0;
  }
}

// Both trees in one: a path that both have is one node with two weights.
function joinTrees(joined, scales) {
  const [parents, frames] = [[], []];
  const own = [[], []];
  const known = new Map();
  joined.sources.forEach((model, side) => {
    const { tree } = model;
    const nodes = new Int32Array(tree.count).fill(-1);
    for (let i = tree.heads; i < tree.count; i += 1) {
      const above = tree.parent[i] < tree.heads ? -1 : nodes[tree.parent[i]];
      const frame = joined.maps[side][tree.frame[i]];
      const key = (above + 1) * joined.count + frame;
      let node = known.get(key);
      if (node === undefined) {
        node = parents.length;
        known.set(key, node);
        parents.push(above);
        frames.push(frame);
        own[0].push(0);
        own[1].push(0);
      }
      nodes[i] = node;
      own[side][node] += tree.own[i] * scales[side];
    }
  });
  const unit = joined.sources[0].tree.unit;
  const sum = own[0].map((value, i) => value + own[1][i]);
  const tree = new Tree({ unit, parents, frames, own: sum, threads: new Int32Array(parents.length), calls: null }, joined, joined.label);
  tree.sides = own.map((values) => {
    const totals = new Float64Array(tree.count);
    values.forEach((value, i) => {
      totals[i + tree.heads] = value;
    });
    const alone = totals.slice();
    for (let i = tree.count - 1; i > 0; i -= 1) totals[tree.parent[i]] += totals[i];
    return { own: alone, total: totals };
  });
  return tree;
}

// From -1 (vanished) over 0 (the same) to 1 (new).
function change(before, after) {
  const most = Math.max(before, after);
  return most > 0 ? (after - before) / most : 0;
}

// Own and total of each joined frame, on both sides. Joined functions that call each other (the
// `forward` of several classes in a file) count once, as a recursion does, where paths are known.
function functionSums(joined, scales) {
  return joined.sources.map((model, side) => {
    const map = joined.maps[side];
    const scaled = (values) => values.map((value) => value * scales[side]);
    if (model.tree) {
      const keys = model.tree.frame.map((frame) => (frame >= 0 ? map[frame] : -1));
      const { own, total } = model.tree.sums(keys, joined.count);
      return { own: scaled(own), total: scaled(total) };
    }
    const sums = { own: new Float64Array(joined.count), total: new Float64Array(joined.count) };
    const counted = model.raw.functions?.of;
    counted?.frame.forEach((frame, i) => {
      sums.own[map[frame]] += counted.own[i] * scales[side];
      sums.total[map[frame]] += counted.total[i] * scales[side];
    });
    return sums;
  });
}

function wholeOf(model) {
  if (model.tree) return model.tree.total[0];
  return model.raw.functions ? model.raw.functions.of.own.reduce((sum, own) => sum + own, 0) : 0;
}

function unitOf(model) {
  return model.tree ? model.tree.unit : "seconds";
}

// How many steps each whole is the sum of; null where that is not known of both. A pass fills a
// fixed time, so the faster side has more steps. Memory in use does not add up over steps.
function stepsOf(models) {
  const steps = models.map((model) => model.raw.steps);
  return steps.every((count) => count > 0) && models.every((model) => unitOf(model) !== "bytes") ? steps : null;
}

export class DiffView {
  constructor(element, models) {
    this.models = models;
    this.sides = [0, 1];
    this.way = "share";
    this.what = "paths";
    this.place = make("div", { class: "view" });
    this.element = element;
    const names = models.map((model, i) => [String(i), model.label]);
    const side = (label, number) =>
      choice(label, names, String(this.sides[number]), (value) => {
        this.sides[number] = Number(value);
        this.show();
      }).element;
    this.bar = make("div", { class: "toolbar" }, side("Before", 0), side("After", 1));
    const ways = [["share", "By share"], ["absolute", "Absolute"]];
    this.ways = switcher("Compare", ways, this.way, (way) => this.show((this.way = way)));
    const whats = [["paths", "Call tree"], ["table", "Functions"]];
    this.whats = switcher("Show", whats, this.what, (what) => this.show((this.what = what)));
    this.said = make("span", { class: "said" });
    this.bar.append(this.ways.element, this.whats.element, this.said);
    refill(element, this.bar, this.place);
    this.show();
  }

  show() {
    const [before, after] = this.sides.map((i) => this.models[i]);
    const alike = unitOf(before) === unitOf(after);
    if (!alike && this.way === "absolute") this.ways.show((this.way = "share"));
    const wholes = [wholeOf(before), wholeOf(after)];
    const steps = stepsOf([before, after]) ?? [1, 1];
    this.scales = this.way === "share" ? wholes.map((whole) => (whole > 0 ? 1 / whole : 0)) : steps.map((count) => 1 / count);
    this.format = this.way === "share" ? formatShare : formatter(unitOf(before));
    // A share that goes from 40 % to 50 % has moved by 10 points, not by 10 %.
    this.formatMove = this.way === "share" ? (move) => formatShare(move).replace("%", "points") : this.format;
    this.said.textContent = this.sentence(wholes, stepsOf([before, after]));
    this.joined = new Joined(before, after);
    const view = make("div", { class: "view" });
    refill(this.place, view);
    const trees = before.tree && after.tree;
    if (!trees) this.whats.show((this.what = "table"));
    if (this.what === "paths") this.showTree(view);
    else this.showTable(view);
  }

  // Both wholes, of a step where that is what is compared, and what cannot be compared.
  sentence(wholes, steps) {
    const models = this.sides.map((i) => this.models[i]);
    const [before, after] = models.map((model, i) => formatter(unitOf(model))(wholes[i] / (steps ? steps[i] : 1)));
    const said = `${before} → ${after}${steps ? " a step" : ""}`;
    if (unitOf(models[0]) !== unitOf(models[1])) return `${said} · units differ, so only shares are compared`;
    const some = models.some((model) => model.raw.steps > 0) && unitOf(models[0]) !== "bytes";
    return some && !steps ? `${said} · in all: only one of them counts its steps` : said;
  }

  difference(before, after) {
    const moved = after - before;
    // Sums in another order differ in the last digit, which is no change.
    const same = Math.abs(moved) <= SAME * Math.max(before, after);
    return same ? this.formatMove(0) : formatSigned(this.formatMove(moved), moved);
  }

  showTree(view) {
    const tree = joinTrees(this.joined, this.scales);
    const [before, after] = tree.sides;
    this.current = mountTree(view, tree, {
      paint: (node, colours) => colours.change[changeIndex(change(before.total[node], after.total[node]))],
      note: (node) => this.difference(before.total[node], after.total[node]),
      figures: (node) => [
        ["total", `${this.format(before.total[node])} → ${this.format(after.total[node])}`],
        ["change", this.difference(before.total[node], after.total[node])],
        ["own", `${this.format(before.own[node])} → ${this.format(after.own[node])}`],
        ["own change", this.difference(before.own[node], after.own[node])],
      ],
      legend: (colours) => [
        ["vanished", colours.change[0]],
        ["halved", colours.change[STEPS / 2]],
        ["the same", colours.change[STEPS]],
        ["doubled", colours.change[STEPS + STEPS / 2]],
        ["new", colours.change[2 * STEPS]],
        ["width: the sum of both", "transparent"],
      ],
    });
    this.search = this.current.search;
  }

  showTable(view) {
    const { joined } = this;
    const [before, after] = functionSums(joined, this.scales);
    const some = [];
    for (let i = 0; i < joined.count; i += 1) if (before.total[i] || after.total[i]) some.push(i);
    const largest = some.reduce((most, i) => Math.max(most, Math.abs(after.own[i] - before.own[i])), 0);
    const number = (key, title, value, text, more = {}) => ({
      key, title, least: 7, numeric: true, value: (row) => value(some[row]), text: (row) => text(some[row]), ...more,
    });
    const tone = (values) => (row) => {
      const moved = values[1][some[row]] - values[0][some[row]];
      return moved > 0 ? "grew" : moved < 0 ? "shrank" : null;
    };
    const ratio = (i) => (before.own[i] > 0 ? after.own[i] / before.own[i] : Infinity);
    const columns = [
      { key: "name", title: "function", least: 12, grow: 3, value: (row) => joined.name(some[row]), text: (row) => joined.name(some[row]) },
      number("before", "own before", (i) => before.own[i], (i) => this.format(before.own[i])),
      number("after", "own after", (i) => after.own[i], (i) => this.format(after.own[i])),
      number("change", "own change", (i) => after.own[i] - before.own[i], (i) => this.difference(before.own[i], after.own[i]), { tone: tone([before.own, after.own]) }),
      number("size", "size", (i) => Math.abs(after.own[i] - before.own[i]), (i) => this.formatMove(Math.abs(after.own[i] - before.own[i])), { bar: (row) => Math.abs(after.own[some[row]] - before.own[some[row]]) / largest }),
      number("ratio", "× own", ratio, (i) => (before.own[i] > 0 ? `${ratio(i).toFixed(2)}×` : after.own[i] > 0 ? "new" : "–")),
      number("total", "total change", (i) => after.total[i] - before.total[i], (i) => this.difference(before.total[i], after.total[i]), { tone: tone([before.total, after.total]) }),
      { key: "place", title: "where", least: 9, grow: 2, value: (row) => joined.place(some[row]), text: (row) => joined.shortPlace(some[row]) },
    ];
    const table = new Table({ label: "What changed", columns, count: some.length, sort: "size" });
    this.search = searchBox("Search ( / )", (text) => {
      const matches = joined.matches(text);
      table.filter(matches ? (row) => matches[some[row]] === 1 : null);
    });
    const clear = () => {
      this.search.value = "";
      table.filter(null);
    };
    this.current = { reset: clear };
    refill(view, make("div", { class: "toolbar" }, make("span", { class: "spring" }), this.search), make("div", { class: "split alone" }, table.element));
  }

  reset() {
    this.current?.reset();
  }
}

export function mountDiff(element, models) {
  return new DiffView(element, models);
}
