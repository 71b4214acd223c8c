// The function table: exact figures where calls were counted, else those of the tree.

import { make, refill, searchBox } from "./dom.js";
import { Table } from "./table.js";
import { formatCount, formatShare, formatter, shareInterval, unitWord } from "./units.js";

// Figures of functions, whatever they come from: columns by row, and who calls whom.
function fromCounts(model) {
  const { of, callers, first } = model.raw.functions;
  const rowOf = new Map(Array.from(of.frame, (frame, row) => [frame, row]));
  const whole = of.own.reduce((sum, own) => sum + own, 0);
  return {
    unit: "seconds",
    exact: true,
    whole,
    ...of,
    callersOf: (row) => {
      const found = [];
      for (let i = first[row]; i < first[row + 1]; i += 1) {
        found.push({ frame: callers.frame[i], calls: callers.calls[i], own: callers.own[i], total: callers.total[i] });
      }
      return found;
    },
    calleesOf: (row) => {
      const found = [];
      for (let other = 0; other < of.frame.length; other += 1) {
        for (let i = first[other]; i < first[other + 1]; i += 1) {
          if (callers.frame[i] !== of.frame[row]) continue;
          found.push({ frame: of.frame[other], calls: callers.calls[i], own: callers.own[i], total: callers.total[i] });
        }
      }
      return found;
    },
    rowOf,
  };
}

function fromTree(model) {
  const { tree } = model;
  const sums = tree.byFrame;
  const seen = new Uint8Array(model.count);
  for (let i = 0; i < tree.count; i += 1) if (tree.frame[i] >= 0) seen[tree.frame[i]] = 1;
  const frame = [];
  for (let i = 0; i < seen.length; i += 1) if (seen[i]) frame.push(i);
  // Sums over calls, by the frame at the other end: `other` says it of a node, or -1.
  const gather = (other) => {
    const ends = Int32Array.from(tree.frame, (_, node) => (node > 0 ? other(tree.frame[node], tree.frame[tree.parent[node]]) : -1));
    const { own, total, calls } = tree.sums(ends, model.count);
    const found = [...new Set(ends)].filter((end) => end >= 0);
    return found.map((end) => ({ frame: end, calls: calls ? calls[end] : 0, own: own[end], total: total[end] }));
  };
  return {
    unit: tree.unit,
    exact: false,
    whole: tree.total[0],
    frame,
    calls: tree.calls ? frame.map((f) => sums.calls[f]) : null,
    primitive: null,
    own: frame.map((f) => sums.own[f]),
    total: frame.map((f) => sums.total[f]),
    callersOf: (row) => gather((called, caller) => (called === frame[row] ? caller : -1)),
    calleesOf: (row) => gather((called, caller) => (caller === frame[row] ? called : -1)),
    rowOf: new Map(frame.map((f, row) => [f, row])),
  };
}

export class FunctionView {
  constructor(element, model, options = {}) {
    this.model = model;
    this.options = options;
    this.figures = model.raw.functions ? fromCounts(model) : fromTree(model);
    this.format = formatter(this.figures.unit);
    this.samples = this.figures.exact ? 0 : model.samplesIn(model.tree, this.figures.whole);
    this.found = make("output", { class: "found" });
    this.search = searchBox("Search ( / )", (text) => this.setSearch(text));
    this.table = new Table({
      label: "Functions",
      columns: this.columns(),
      count: this.figures.frame.length,
      sort: "own",
      onSelect: (row) => this.showSide(row),
    });
    this.side = make("aside", { class: "side", "aria-label": "Callers and callees" });
    const said = this.figures.exact ? "counted: exact figures" : `by ${unitWord(this.figures.unit)}, from call paths`;
    const bar = make("div", { class: "toolbar" }, make("span", { class: "said" }, said), make("span", { class: "spring" }), this.found, this.search);
    bar.append(make("button", { type: "button", class: "reset", onclick: () => this.reset() }, "Reset"));
    refill(element, bar, make("div", { class: "split" }, this.table.element, this.side));
    this.setSearch("");
    this.showSide(-1);
  }

  columns() {
    const { figures, model, format } = this;
    const share = (values) => (row) => values[row] / figures.whole;
    const columns = [
      {
        key: "name", title: "function", least: 12, grow: 3,
        text: (row) => model.shortName(figures.frame[row]), full: (row) => model.name(figures.frame[row]),
        value: (row) => model.shortName(figures.frame[row]),
      },
    ];
    const number = (key, title, least, value, text, more = {}) =>
      columns.push({ key, title, least, numeric: true, value, text: (row) => text(value(row)), ...more });
    if (figures.calls) number("calls", "calls", 5, (row) => figures.calls[row], formatCount);
    if (figures.primitive) {
      const hint = "calls that are not recursive";
      number("primitive", "primitive", 5, (row) => figures.primitive[row], formatCount, { hint });
    }
    number("own", "own", 4.8, (row) => figures.own[row], format);
    number("own-share", "own %", 5, share(figures.own), formatShare, { bar: share(figures.own) });
    if (figures.calls) number("own-call", "own / call", 5.4, (row) => figures.own[row] / figures.calls[row], format);
    number("total", "total", 4.8, (row) => figures.total[row], format);
    number("total-share", "total %", 5, share(figures.total), formatShare, { bar: share(figures.total) });
    const perCall = (row) => figures.total[row] / (figures.primitive ?? figures.calls)[row];
    if (figures.calls) number("total-call", "total / call", 5.4, perCall, format);
    columns.push({
      key: "place", title: "where", least: 9, grow: 2,
      text: (row) => model.shortPlace(figures.frame[row]), full: (row) => model.place(figures.frame[row]),
      value: (row) => model.place(figures.frame[row]),
    });
    return columns;
  }

  setSearch(text) {
    const matches = this.model.matches(text);
    this.table.filter(matches ? (row) => matches[this.figures.frame[row]] === 1 : null);
    const [shown, all] = [this.table.rows.length, this.figures.frame.length];
    this.found.textContent = matches ? `${formatCount(shown)} of ${formatCount(all)}` : `${formatCount(all)} functions`;
  }

  reset() {
    this.search.value = "";
    this.setSearch("");
    this.table.select(-1, false);
    this.showSide(-1);
  }

  showFrame(frame) {
    const row = this.figures.rowOf.get(frame);
    if (row === undefined) return;
    this.search.value = "";
    this.setSearch("");
    this.table.show(row);
  }

  related(title, entries) {
    const list = make("ul", { class: "related" });
    entries.sort((a, b) => b.total - a.total);
    for (const entry of entries) {
      const calls = this.figures.calls ? `${formatCount(entry.calls)} ${entry.calls === 1 ? "call" : "calls"} · ` : "";
      const said = make("span", { class: "amount" }, `${calls}${this.format(entry.total)}`);
      const name = this.model.name(entry.frame);
      const go = () => this.showFrame(entry.frame);
      list.append(make("li", {}, make("button", { type: "button", onclick: go, title: this.model.place(entry.frame) }, name), said));
    }
    if (!entries.length) list.append(make("li", { class: "nothing" }, "none"));
    return [make("h3", {}, `${title} (${formatCount(entries.length)})`), list];
  }

  showSide(row) {
    if (row < 0) {
      refill(this.side, make("h2", {}, "Functions"), make("p", { class: "hint" }, "Choose a row to see who calls it and what it calls."));
      return;
    }
    const { figures, model } = this;
    const frame = figures.frame[row];
    const interval = this.samples ? shareInterval((figures.own[row] / figures.whole) * this.samples, this.samples) : null;
    const said = interval ? make("p", { class: "hint" }, `own share, 95 %: ${formatShare(interval[0])} – ${formatShare(interval[1])}`) : null;
    const inTree = this.options.onTree && model.tree
      ? make("button", { type: "button", onclick: () => this.options.onTree(frame) }, "Show in the call tree")
      : null;
    refill(
      this.side,
      make("h2", {}, model.name(frame)),
      make("p", { class: "place" }, model.place(frame)),
      make("span", { class: "kind" }, model.kind(frame)),
      said,
      inTree,
      ...this.related("Callers", figures.callersOf(row)),
      ...this.related("Callees", figures.calleesOf(row)),
    );
  }
}

export function mountFunctions(element, model, options = {}) {
  return new FunctionView(element, model, options);
}
