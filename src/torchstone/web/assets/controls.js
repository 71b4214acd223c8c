// A droplist that is changed shows its page at once; the address keeps only what was chosen.
"use strict";
{
  // In place where the server can be asked (live.js), else as a link does.
  const go = (href) => {
    const asked = new CustomEvent("torchstone:go", { cancelable: true, detail: href });
    if (document.dispatchEvent(asked)) location.assign(href);
  };

  const address = (fields, submitter, changed = "") => {
    const url = new URL(fields.action);
    const data = new FormData(fields);
    // A zoom lasts until another range is chosen.
    if (changed !== "range") for (const name of ["from", "to"]) if (given.has(name)) data.set(name, given.get(name));
    if (submitter?.name) data.set(submitter.name, submitter.value);
    for (const [name, value] of data) if (value !== "" && chosen(fields, name)) url.searchParams.append(name, value);
    return url.href;
  };

  // What the reader touched, now or before. Defaults stay out of the address, so that a link made
  // today shows the newest run tomorrow.
  let given = new URLSearchParams(location.search);
  let touched = new Set(given.keys());
  const chosen = (fields, name) => touched.has(name) || fields.elements[name]?.type !== "select-one";

  document.addEventListener("change", (event) => {
    const field = event.target;
    if (!field.form || field.form.id !== "controls") return;
    touched.add(field.name);
    if (field.type === "search") return;
    go(address(field.form, null, field.name));
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id !== "controls") return;
    event.preventDefault();
    go(address(event.target, event.submitter));
  });
  // Escape leaves a zoom, as it leaves whatever else one has got into.
  document.addEventListener("keydown", (event) => {
    const url = new URL(location.href);
    const zoomed = ["from", "to"].filter((name) => url.searchParams.has(name));
    if (event.key !== "Escape" || event.defaultPrevented || zoomed.length === 0) return;
    for (const name of zoomed) url.searchParams.delete(name);
    go(url.href);
  });
  // Whoever comes back finds what the address says, not what was chosen last.
  addEventListener("pageshow", () => document.getElementById("controls")?.reset());

  const offerCopy = (text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
      }
    });
    text.parentElement.append(button);
  };

  // What is new on the page, now and whenever a part of it is replaced.
  const narrow = matchMedia("(max-width: 40rem)");
  let folded = narrow.matches; // on a phone the figures come first
  const prepare = () => {
    const choices = document.querySelector("details.choices");
    if (choices) {
      choices.open = !folded;
      choices.addEventListener("toggle", () => (folded = !choices.open));
    }
    given = new URLSearchParams(location.search);
    touched = new Set(given.keys());
    document.querySelector("#controls button[type=submit]")?.classList.add("unseen");
    if (!navigator.clipboard) return; // only where the page is trusted: this machine, or https
    for (const text of document.querySelectorAll("pre[data-copy]")) {
      if (!text.parentElement.querySelector(".copy")) offerCopy(text);
    }
  };
  document.addEventListener("torchstone:fresh", prepare);
  prepare();

  // On a phone not all names of pages fit: that of this page is among those that are seen.
  const here = document.querySelector(".bar nav [aria-current]");
  if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;
}
