// Tables are put in order and filtered here, where all their rows are on the page.
"use strict";
{
  const value = (cell) => {
    const number = cell.dataset.v;
    if (number !== undefined) return Number(number);
    return cell.textContent.trim().toLowerCase();
  };

  const compare = (a, b) => {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  };

  // Rows without a value come last, either way.
  const sort = (table, place, down) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [value(row.cells[place]), row]);
    const known = rows.filter(([key]) => key !== "");
    const rest = rows.filter(([key]) => key === "");
    known.sort((a, b) => (down ? compare(b[0], a[0]) : compare(a[0], b[0])));
    body.append(...[...known, ...rest].map(([, row]) => row));
    for (const head of table.tHead.rows[table.tHead.rows.length - 1].cells) head.removeAttribute("aria-sort");
    const head = table.tHead.rows[table.tHead.rows.length - 1].cells[place];
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  };

  const remember = (name, text) => {
    const url = new URL(location.href);
    if (text) url.searchParams.set(name, text);
    else url.searchParams.delete(name);
    try {
      history.replaceState(null, "", url);
    } catch {
      // a page from disk may not
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("thead button");
    if (!button) return;
    const table = button.closest("table");
    if (table.dataset.whole !== "yes") return;
    event.preventDefault();
    const head = button.closest("th");
    const first = head.classList.contains("num") ? "descending" : "ascending";
    const now = head.getAttribute("aria-sort");
    const down = (now === first) !== (first === "descending");
    sort(table, head.cellIndex, down);
    if (button.name === "sort") remember("sort", (down ? "-" : "") + button.dataset.key);
  });

  // As the server does: names and words, not figures.
  const names = (row) =>
    [...row.cells].filter((cell) => !cell.classList.contains("num")).map((cell) => cell.textContent).join("\n").toLowerCase();

  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.name !== "filter" || field.type !== "search") return;
    const tables = [...document.querySelectorAll("main table")].filter((one) => one.dataset.whole === "yes");
    if (field.defaultValue !== "") return; // the server left rows out; it must be asked again
    const wanted = field.value.toLowerCase();
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) row.hidden = !names(row).includes(wanted);
    }
    remember("filter", field.value);
  });
}

// One stop for Tab in a table's head, one in its rows, one for its files; arrow keys go on inside. Without scripts
// every link is a stop.
{
  const narrow = matchMedia("(max-width: 40rem)");
  const linksOf = (part) => [...part.querySelectorAll("a[href], button")];

  // On a phone a row is a card, in which each figure needs its name.
  const name = (table) => {
    if (table.classList.contains("cards")) return;
    const titles = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((one) => one.textContent);
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) cell.dataset.label = titles[cell.cellIndex];
    }
    table.classList.add("cards");
  };

  // A box that holds all of its table needs neither a bar to scroll by nor the focus.
  const fit = () => {
    for (const box of document.querySelectorAll(".block > .scroll")) {
      const table = box.querySelector("table");
      if (narrow.matches) name(table);
      box.classList.remove("tight");
      if (table.offsetWidth > box.clientWidth + 1) box.classList.add("tight");
      const fits = table.offsetWidth <= box.clientWidth + 1;
      box.classList.toggle("fits", fits);
      box.tabIndex = fits ? -1 : 0;
    }
    for (const box of document.querySelectorAll(".code > .scroll")) {
      const fits = box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight;
      box.tabIndex = fits ? -1 : 0;
    }
  };

  const prepare = () => {
    for (const part of document.querySelectorAll("table thead, table tbody, .exports")) {
      linksOf(part).forEach((link, place) => (link.tabIndex = place ? -1 : 0));
    }
    fit();
  };

  const beside = (link, step) => {
    const row = linksOf(link.closest("tr, .exports"));
    return row[row.indexOf(link) + step];
  };

  // The link in the same column, or the first of the row where that one has none; from the head
  // into the rows and back.
  const below = (link, step) => {
    if (!link.closest("table")) return null;
    const { cellIndex } = link.closest("td, th");
    const { rows } = link.closest("table");
    for (let place = link.closest("tr").rowIndex + step; rows[place]; place += step) {
      const found = rows[place].cells[cellIndex]?.querySelector("a[href], button") ?? linksOf(rows[place])[0];
      if (found && !rows[place].hidden) return found;
    }
    return null;
  };

  const STEPS = { ArrowRight: [beside, 1], ArrowLeft: [beside, -1], ArrowDown: [below, 1], ArrowUp: [below, -1] };
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest?.("table a[href], table button, .exports a");
    const step = STEPS[event.key];
    if (!link || !step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const next = step[0](link, step[1]);
    if (!next) return;
    event.preventDefault();
    for (const one of linksOf(next.closest("thead, tbody, .exports"))) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  document.addEventListener("torchstone:fresh", prepare);
  addEventListener("resize", fit);
  prepare();
}
