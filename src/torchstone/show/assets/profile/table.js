// A table of any length: only the rows on screen exist.

import { later, make, refill } from "./dom.js";

const ROW = 27;
const SPARE = 6;

export class Table {
  // `columns`: { key, title, text(row), full(row), value(row), numeric, least, grow, bar(row), tone(row), hint };
  // `onSelect(row)` is told when a row is chosen; `marked(row)` rows stand out.
  constructor({ label, columns, count, sort, descending = true, onSelect, marked, empty = "Nothing found." }) {
    Object.assign(this, { columns, count, sort, descending, onSelect, marked, empty });
    this.rows = Array.from({ length: count }, (_, i) => i);
    this.keep = null;
    this.selected = -1;
    this.collator = new Intl.Collator("en", { numeric: true });
    this.values = new Map();
    this.head = make("div", { class: "thead", role: "row", "aria-rowindex": "1" });
    this.inner = make("div", { class: "tinner", role: "rowgroup" });
    // One place scrolls both ways, and the heading sticks to its top.
    this.body = make("div", { class: "table", tabindex: "0", role: "table", "aria-label": label }, this.head, this.inner);
    this.element = this.body;
    const widths = columns.map(({ least, grow }) => (grow ? `minmax(${least}rem, ${grow}fr)` : `${least}rem`));
    this.element.style.setProperty("--columns", widths.join(" "));
    this.element.style.setProperty("--least", `${columns.reduce((sum, { least }) => sum + least, 0)}rem`);
    this.redraw = later(() => this.paint());
    this.body.addEventListener("scroll", this.redraw, { passive: true });
    this.body.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(this.redraw).observe(this.body);
    this.drawHead();
    this.order();
  }

  // How tall the part is in which rows are seen.
  get room() {
    return this.body.clientHeight - this.head.offsetHeight;
  }

  drawHead() {
    refill(this.head, ...this.columns.map((column) => {
      const sorted = this.sort === column.key ? (this.descending ? "descending" : "ascending") : "none";
      const button = make("button", { type: "button", title: column.hint, onclick: () => this.sortBy(column) }, column.title);
      const kind = column.numeric ? "number" : "";
      return make("div", { role: "columnheader", "aria-sort": sorted, class: kind, "data-key": column.key }, button);
    }));
  }

  sortBy(column) {
    this.descending = this.sort === column.key ? !this.descending : Boolean(column.numeric);
    this.sort = column.key;
    this.drawHead();
    this.order();
  }

  valuesOf(column) {
    if (!this.values.has(column.key)) {
      const values = Array.from({ length: this.count }, (_, row) => column.value(row));
      this.values.set(column.key, values);
    }
    return this.values.get(column.key);
  }

  // Show only rows for which `keep(row)` holds; null shows all.
  filter(keep) {
    this.keep = keep;
    this.order();
  }

  order() {
    const column = this.columns.find((one) => one.key === this.sort);
    const rows = [];
    for (let i = 0; i < this.count; i += 1) if (!this.keep || this.keep(i)) rows.push(i);
    if (column) {
      const values = this.valuesOf(column);
      const sign = this.descending ? -1 : 1;
      const compare = column.numeric
        ? (a, b) => sign * ((values[a] || 0) - (values[b] || 0)) || a - b
        : (a, b) => sign * this.collator.compare(values[a], values[b]) || a - b;
      rows.sort(compare);
    }
    this.rows = rows;
    this.inner.style.height = `${Math.max(1, rows.length) * ROW}px`;
    this.element.setAttribute("aria-rowcount", String(rows.length + 1));
    this.redraw();
  }

  paint() {
    const from = Math.max(0, Math.floor(this.body.scrollTop / ROW) - SPARE);
    const to = Math.min(this.rows.length, Math.ceil((this.body.scrollTop + this.room) / ROW) + SPARE);
    const shown = [];
    for (let i = from; i < to; i += 1) shown.push(this.drawRow(this.rows[i], i));
    if (!this.rows.length) shown.push(make("p", { class: "nothing" }, this.empty));
    refill(this.inner, ...shown);
  }

  drawRow(row, index) {
    const cells = this.columns.map((column) => {
      const text = column.text(row);
      const cell = make("div", { role: "cell", class: column.numeric ? "number" : column.code ? "code" : "name", title: column.numeric ? null : column.full?.(row) ?? text });
      if (column.bar) {
        const bar = make("i", { class: "bar" });
        bar.style.width = `${(100 * Math.max(0, Math.min(1, column.bar(row) || 0))).toFixed(2)}%`;
        cell.append(bar);
      }
      const tone = column.tone?.(row);
      cell.append(make("span", { class: tone ?? null }, text));
      return cell;
    });
    const look = this.marked?.(row) ? "row marked" : "row";
    const element = make(
      "div",
      { class: look, role: "row", "aria-rowindex": index + 2, "aria-selected": String(row === this.selected), onclick: () => this.select(row) },
      ...cells,
    );
    element.style.top = `${index * ROW}px`;
    return element;
  }

  select(row, tell = true) {
    this.selected = row;
    this.redraw();
    if (tell) this.onSelect?.(row);
  }

  // Choose a row and scroll to it.
  show(row) {
    let index = this.rows.indexOf(row);
    if (index < 0) {
      this.filter(null);
      index = this.rows.indexOf(row);
    }
    this.select(row);
    this.scrollTo(row);
  }

  scrollTo(row) {
    const index = this.rows.indexOf(row);
    if (index >= 0) this.body.scrollTop = Math.max(0, index * ROW - this.room / 2);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.room / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || !this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const now = this.rows.indexOf(this.selected);
    const next = Math.max(0, Math.min(this.rows.length - 1, (now < 0 ? -1 : now) + step));
    this.select(this.rows[next]);
    const top = next * ROW;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    if (top + ROW > this.body.scrollTop + this.room) this.body.scrollTop = top + ROW - this.room;
  }
}
