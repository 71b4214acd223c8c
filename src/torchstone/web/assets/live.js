// A run that is measured now moves on the page without a reload: a small answer is asked for again
// and again, and when it differs, the parts that are marked are taken from the page made anew.
"use strict";
{
  const BUSY_MS = 2000;
  const IDLE_MS = 6000;
  const { progress } = document.body.dataset;
  let state = document.body.dataset.state;
  let wait = IDLE_MS;

  const ask = async (address, kind) => {
    const answer = await fetch(address, { cache: "no-cache", credentials: "omit", headers: { accept: kind } });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  };

  const swap = (fresh) => {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (next && next.outerHTML !== part.outerHTML && !part.contains(document.activeElement)) {
        const box = part.querySelector(".scroll");
        const place = box ? [box.scrollLeft, box.scrollTop] : null;
        part.replaceWith(document.adoptNode(next));
        const made = document.getElementById(part.id)?.querySelector(".scroll");
        if (place && made) made.scrollTo(...place);
      }
    }
    const form = document.getElementById("controls");
    const next = fresh.getElementById("controls");
    if (form && next && !form.contains(document.activeElement)) {
      next.querySelector("button[type=submit]")?.classList.add("unseen");
      form.replaceWith(document.adoptNode(next));
    }
  };

  const look = async () => {
    try {
      const told = JSON.parse(await ask(progress, "application/json"));
      wait = told.runs.some((run) => run.state === "running") ? BUSY_MS : IDLE_MS;
      if (told.state !== state) {
        const text = await ask(location.href, "text/html");
        swap(new DOMParser().parseFromString(text, "text/html"));
        state = told.state;
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

  if (progress && document.querySelector("[data-live]")) setTimeout(again, BUSY_MS);
}
