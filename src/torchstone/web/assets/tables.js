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

// One stop for Tab in a table; arrow keys go on inside it. Without scripts every link is a stop.
{
  const linksOf = (part) => [...part.querySelectorAll("a[href]")];

  const prepare = () => {
    for (const body of document.querySelectorAll("table tbody")) {
      linksOf(body).forEach((link, place) => (link.tabIndex = place ? -1 : 0));
    }
  };

  const beside = (link, step) => {
    const row = linksOf(link.closest("tr"));
    return row[row.indexOf(link) + step];
  };

  // The link in the same column, or the first of the row where that one has none.
  const below = (link, step) => {
    const { cellIndex } = link.closest("td, th");
    let row = link.closest("tr");
    while ((row = step > 0 ? row.nextElementSibling : row.previousElementSibling)) {
      const found = row.cells[cellIndex]?.querySelector("a[href]") ?? linksOf(row)[0];
      if (found && !row.hidden) return found;
    }
    return null;
  };

  const STEPS = { ArrowRight: [beside, 1], ArrowLeft: [beside, -1], ArrowDown: [below, 1], ArrowUp: [below, -1] };
  document.addEventListener("keydown", (event) => {
    const link = event.target.closest?.("tbody a[href]");
    const step = STEPS[event.key];
    if (!link || !step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const next = step[0](link, step[1]);
    if (!next) return;
    event.preventDefault();
    link.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  document.addEventListener("torchstone:fresh", prepare);
  prepare();
}
