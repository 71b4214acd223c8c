// What is stored while a page is open. A small answer is asked for again and again, and when it differs,
// the page is made again. Runs that are measured move by themselves. All the rest of a page speaks of one
// state of the database, so it is replaced as a whole, or not at all and the newer page is offered.
"use strict";
{
  const BUSY_MS = 2000;
  const IDLE_MS = 6000;
  const { progress } = document.body.dataset;
  let address = location.href; // as the server was asked; sorting and filtering here change it
  const main = document.getElementById("main");
  const newer = document.getElementById("newer");
  let state = document.body.dataset.state;
  let wait = IDLE_MS;

  const ask = async (from, kind) => {
    const answer = await fetch(from, { cache: "no-cache", credentials: "omit", headers: { accept: kind } });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  };

  const isHeld = (id) => document.getElementById(id).contains(document.activeElement);

  // A field, a chart's values under the pointer, or text to be copied.
  const isUsed = () =>
    ["about", "choices", "content"].some(isHeld) ||
    document.querySelector("#content .chart-frame:hover") !== null ||
    !getSelection().isCollapsed;

  const isTyped = () => {
    const field = document.querySelector("#choices input[type=search]");
    return field !== null && field.value !== field.defaultValue;
  };

  const exchange = (fresh, ids) => {
    for (const id of ids) document.getElementById(id).replaceWith(document.adoptNode(fresh.getElementById(id)));
    document.dispatchEvent(new Event("torchstone:fresh"));
  };

  const move = (fresh) => {
    const now = document.getElementById("running");
    if (now.outerHTML === fresh.getElementById("running").outerHTML) return;
    const held = isHeld("running") ? document.activeElement.closest(".progress")?.id : null;
    exchange(fresh, ["running"]);
    if (held) document.getElementById(held)?.querySelector("a")?.focus({ preventScroll: true });
  };

  const replaceAll = (fresh) => {
    const boxes = [...document.querySelectorAll("#content .scroll")];
    const places = boxes.map((box) => [box.closest("[id]").id, box.scrollLeft, box.scrollTop]);
    exchange(fresh, ["about", "choices", "content"]);
    for (const [id, left, top] of places) document.getElementById(id)?.querySelector(".scroll")?.scrollTo(left, top);
  };

  // Where the reader is: the field, or the heading of a table, that has the focus.
  const focused = () => {
    const held = document.activeElement;
    if (!held || held === document.body) return null;
    if (held.form?.id === "controls" && held.name && !held.dataset.key) return `#controls [name="${held.name}"]`;
    const block = held.closest("[id]");
    const key = held.dataset.key;
    return block && key ? `#${CSS.escape(block.id)} [data-key="${key}"]` : block ? `#${CSS.escape(block.id)}` : null;
  };

  // Another state of the same page: fetched and put in its place, so that neither the scroll position
  // nor the focus is lost. The address is the state all the same.
  const show = async (href) => {
    try {
      const fresh = new DOMParser().parseFromString(await ask(href, "text/html"), "text/html");
      const place = focused();
      if (location.href !== href) history.pushState(null, "", href);
      address = href;
      document.title = fresh.title;
      replaceAll(fresh);
      main.dataset.made = fresh.getElementById("main").dataset.made;
      newer.hidden = true;
      if (place) document.querySelector(place)?.focus({ preventScroll: true });
    } catch {
      location.assign(href); // the server's own page says what is wrong
    }
  };
  document.addEventListener("torchstone:go", (event) => {
    if (new URL(event.detail).pathname !== location.pathname) return;
    event.preventDefault();
    show(event.detail);
  });
  addEventListener("popstate", () => show(location.href));

  // Whether the page is done with this state; what a reader is at just now is left alone, and tried again.
  const take = (fresh) => {
    const { made } = fresh.getElementById("main").dataset;
    move(fresh);
    if (made === main.dataset.made) {
      newer.hidden = true;
      if (!isHeld("choices") && !isTyped()) exchange(fresh, ["choices"]); // further runs to choose from
      return true;
    }
    const isLive = "live" in main.dataset;
    newer.hidden = isLive && !isUsed();
    if (!newer.hidden) return !isLive;
    replaceAll(fresh);
    main.dataset.made = made;
    return true;
  };

  const look = async () => {
    try {
      const told = JSON.parse(await ask(progress, "application/json"));
      wait = told.runs.some((run) => run.state === "running") ? BUSY_MS : IDLE_MS;
      if (told.state !== state) {
        const text = await ask(address, "text/html");
        if (take(new DOMParser().parseFromString(text, "text/html"))) state = told.state;
      }
    } catch {
      wait = IDLE_MS; // the server is gone; it may come back
    }
    setTimeout(again, wait);
  };

  const again = () => {
    if (document.hidden) document.addEventListener("visibilitychange", again, { once: true });
    else look();
  };

  if (progress && newer) setTimeout(again, BUSY_MS);
}
