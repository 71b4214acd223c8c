// What each line took, beside the source, and the bytecode of a function beside its lines.

import { choice, make, refill, searchBox } from "./dom.js";
import { Table } from "./table.js";
import { formatBytes, formatCount, formatSeconds, formatShare, formatSigned } from "./units.js";

const BLANK = "";
const PARTS = 3;

// The end of a path: enough to know it by, and what a narrow box would cut.
function tail(path) {
  const parts = path.split(/[\\/]/);
  return parts.length > PARTS ? `…/${parts.slice(-PARTS).join("/")}` : path;
}

export class LineView {
  constructor(element, model) {
    this.model = model;
    this.files = this.gather();
    this.found = make("output", { class: "found" });
    this.search = searchBox("Search ( / )", (text) => this.setSearch(text));
    this.place = make("div", { class: "split even" });
    const names = this.files.map((file, i) => [String(i), tail(file.name)]);
    const pick = choice("File", names, "0", (value) => this.showFile(Number(value)));
    this.pick = pick.select;
    const bar = make("div", { class: "toolbar" }, pick.element, make("span", { class: "spring" }), this.found, this.search);
    bar.append(make("button", { type: "button", class: "reset", onclick: () => this.reset() }, "Reset"));
    refill(element, bar, this.place);
    this.showFile(0);
  }

  // One entry a file: its lines, and the functions whose bytecode is known.
  gather() {
    const files = new Map();
    const entry = (name) => {
      if (!files.has(name)) files.set(name, { name, table: null, codes: [], seconds: 0 });
      return files.get(name);
    };
    for (const table of this.model.raw.lines) {
      const file = entry(table.file);
      file.table = table;
      file.seconds = table.seconds ? table.seconds.reduce((sum, one) => sum + one, 0) : 0;
    }
    for (const code of this.model.raw.bytecode) entry(this.model.file(code.frame) || "?").codes.push(code);
    return [...files.values()].sort((a, b) => b.seconds - a.seconds);
  }

  showFile(number) {
    this.file = this.files[number];
    this.line = 0;
    this.lines = this.file.table ? this.lineTable(this.file.table) : null;
    const panel = make("div", { class: "panel" });
    this.codePanel = this.file.codes.length ? panel : null;
    refill(this.place, this.lines?.element, this.codePanel);
    this.place.classList.toggle("alone", !this.lines || !this.codePanel);
    if (this.codePanel) this.showCode(0);
    this.setSearch(this.search.value);
    this.showHottest();
  }

  // Begin where most was taken: the head of a file is mostly imports.
  showHottest() {
    const { table } = this.file;
    const taken = table?.seconds ?? table?.increment ?? table?.hits;
    if (!taken?.length) return;
    const most = taken.reduce((best, value, i) => (value > taken[best] ? i : best), 0);
    this.lines.scrollTo(this.numbers.indexOf(table.line[most]));
    if (this.codePanel) this.codes.scrollTo(this.code.line.indexOf(table.line[most]));
  }

  lineTable(table) {
    const { strings } = this.model;
    const where = new Map(Array.from(table.line, (line, i) => [line, i]));
    const whole = table.text.length > 0;
    // Without the source only the lines that took something can be shown.
    const numbers = whole ? Array.from(table.text, (_, i) => i + 1) : Array.from(table.line);
    this.numbers = numbers;
    this.sourceOf = (row) => (whole ? strings[table.text[row]] : "(the source is not here)");
    const figure = (values) => (row) => (where.has(numbers[row]) ? values[where.get(numbers[row])] : NaN);
    const said = (format) => (value) => (Number.isFinite(value) ? format(value) : BLANK);
    const columns = [{ key: "line", title: "line", least: 3.4, numeric: true, value: (row) => numbers[row], text: (row) => String(numbers[row]) }];
    const number = (key, title, value, format, more = {}) =>
      columns.push({ key, title, least: 5.1, numeric: true, value, text: (row) => said(format)(value(row)), ...more });
    if (table.hits) number("hits", "hits", figure(table.hits), formatCount);
    if (table.seconds) {
      const seconds = figure(table.seconds);
      const sum = table.seconds.reduce((all, one) => all + one, 0);
      const most = table.seconds.reduce((all, one) => Math.max(all, one), 0);
      number("time", "time", seconds, formatSeconds);
      if (table.hits) number("hit", "per hit", (row) => seconds(row) / figure(table.hits)(row), formatSeconds);
      number("share", "share", (row) => seconds(row) / sum, formatShare, { bar: (row) => seconds(row) / most });
    }
    if (table.bytes) number("bytes", "memory", figure(table.bytes), formatBytes);
    if (table.increment) {
      const grown = figure(table.increment);
      const most = table.increment.reduce((all, one) => Math.max(all, one), 0);
      number("increment", "increment", grown, (value) => formatSigned(formatBytes(value), value), { least: 6.6, bar: (row) => grown(row) / most });
    }
    columns.push({ key: "source", title: "source", least: 23, grow: 1, value: this.sourceOf, text: this.sourceOf, code: true });
    return new Table({
      label: `Lines of ${table.file}`, columns, count: numbers.length, sort: "line", descending: false,
      onSelect: (row) => this.chooseLine(numbers[row]),
      marked: (row) => numbers[row] === this.line,
    });
  }

  showCode(number) {
    const code = this.file.codes[number];
    const { strings } = this.model;
    const text = (column) => (row) => strings[code[column][row]];
    this.code = code;
    const names = this.file.codes.map((one, i) => [String(i), this.model.name(one.frame)]);
    const pick = choice("Bytecode of", names, String(number), (value) => this.showCode(Number(value)));
    const special = code.specialised.reduce((sum, one) => sum + (strings[one] ? 1 : 0), 0);
    const number_ = (key, title, values, least) => ({
      key, title, least, numeric: true, value: (row) => values[row], text: (row) => String(values[row]),
    });
    const mark = (row) => (code.target[row] ? "» " : "");
    this.codes = new Table({
      label: "Bytecode", count: code.offset.length, sort: "offset", descending: false,
      columns: [
        number_("offset", "offset", code.offset, 3.8),
        number_("line", "line", code.line, 3.4),
        { key: "name", title: "instruction", least: 9.4, grow: 2, value: text("name"), text: (row) => mark(row) + text("name")(row), code: true },
        { key: "argument", title: "argument", least: 6, grow: 1.4, value: text("argument"), text: text("argument"), code: true },
        { key: "special", title: "specialised to", least: 9.4, grow: 2, value: text("specialised"), text: text("specialised"), tone: () => "special", code: true },
      ],
      onSelect: (row) => this.chooseLine(code.line[row], false),
      marked: (row) => this.line > 0 && code.line[row] === this.line,
    });
    const said = make("span", { class: "said" }, `${formatCount(special)} of ${formatCount(code.offset.length)} specialised`);
    refill(this.codePanel, make("div", { class: "toolbar" }, pick.element, said), this.codes.element);
  }

  // Mark a line here and its instructions there.
  chooseLine(line, fromLines = true) {
    this.line = line;
    if (fromLines && this.codePanel) {
      if (!this.code.line.includes(line)) {
        const other = this.file.codes.findIndex((code) => code.line.includes(line));
        if (other >= 0) this.showCode(other);
      }
      this.codes.scrollTo(this.code.line.indexOf(line));
    } else if (!fromLines && this.lines) this.lines.scrollTo(this.numbers.indexOf(line));
    this.lines?.redraw();
    this.codes?.redraw();
  }

  setSearch(text) {
    const wanted = text.trim().toLowerCase();
    this.lines?.filter(wanted ? (row) => this.sourceOf(row).toLowerCase().includes(wanted) : null);
    this.found.textContent = wanted && this.lines ? `${formatCount(this.lines.rows.length)} lines` : "";
  }

  reset() {
    this.search.value = "";
    this.line = 0;
    this.setSearch("");
    this.codes?.redraw();
  }
}

export function mountLines(element, model) {
  return new LineView(element, model);
}
