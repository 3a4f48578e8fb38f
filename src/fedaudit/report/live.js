"use strict";
(() => {
  // The server sends the sections that it would show now. Those that changed are put in the place of the former ones;
  // what a reader unfolded, sorted, chose or scrolled to stays.
  const main = document.querySelector("main");
  const state = document.querySelector("#link");
  const say = (words, lost) => {
    state.textContent = words;
    state.classList.toggle("lost", lost);
  };
  const keep = (from, to) => {
    const folded = [...to.querySelectorAll("details")];
    [...from.querySelectorAll("details")].forEach((each, i) => { if (folded[i]) folded[i].open = each.open; });
    const chosen = new Set([...from.querySelectorAll("input:checked")].map((each) => each.value));
    for (const each of to.querySelectorAll("input[type=checkbox]")) each.checked = chosen.has(each.value);
  };
  const sorted = (table) => {
    const head = table.querySelector("thead [aria-sort]");
    return head && { column: head.cellIndex, down: head.getAttribute("aria-sort") === "descending" };
  };
  const replace = (former, section) => {
    keep(former, section);
    const ways = [...former.querySelectorAll("table")].map(sorted);
    const sideways = [...former.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const focus = former.contains(document.activeElement) ? document.activeElement.value : "";
    former.replaceWith(section);
    document.dispatchEvent(new Event("fedaudit-changed"));
    [...section.querySelectorAll("table")].forEach((table, i) => {
      const button = ways[i] && table.tHead.rows[0].cells[ways[i].column].querySelector("button");
      if (!button) return;
      button.click();
      if (ways[i].down) button.click();
    });
    [...section.querySelectorAll(".scroll")].forEach((each, i) => { each.scrollLeft = sideways[i] || 0; });
    if (focus) for (const each of section.querySelectorAll("input")) if (each.value === focus) each.focus();
  };
  const show = (markup) => {
    const made = new DOMParser().parseFromString(`<main>${markup}</main>`, "text/html").querySelector("main");
    const wanted = [...made.children];
    wanted.forEach((section, i) => {
      const former = [...main.children].find((each) => each.id === section.id);
      const same = former && former.dataset.mark === section.dataset.mark;
      if (former && !same) replace(former, section);
      const placed = same ? former : section;
      if (main.children[i] !== placed) main.insertBefore(placed, main.children[i] || null);
    });
    while (main.children.length > wanted.length) main.lastElementChild.remove();
    document.dispatchEvent(new Event("fedaudit-changed"));
  };
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(main.dataset.events);
    source.addEventListener("open", () => say("Live", false));
    source.addEventListener("page", (event) => show(event.data));
    source.addEventListener("error", () => say("Not connected: is fedaudit serve still running?", true));
  };
  // A browser opens few connections to one address: a tab that nobody sees gives its own back.
  const close = () => {
    if (source) source.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
