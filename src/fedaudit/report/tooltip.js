"use strict";
(() => {
  // Native titles stay for readers without this script; with it they answer at once and follow the pointer.
  const prepare = () => {
    for (const chart of document.querySelectorAll("svg.chart")) {
      const title = chart.querySelector(":scope > title");
      if (title) {
        chart.setAttribute("aria-label", title.textContent);
        title.remove();
      }
      for (const hit of chart.querySelectorAll(".hit")) {
        const own = hit.querySelector("title");
        if (own) {
          hit.setAttribute("data-tip", own.textContent);
          own.remove();
        }
      }
    }
  };
  prepare();
  // What is wider than the screen says so, as long as there is more of it to the right.
  const measure = () => {
    // All are looked at before one is changed: else the page would be laid out anew for each.
    const holders = [...document.querySelectorAll(".holds")].map((holder) => {
      const inner = holder.querySelector(".scroll");
      const { scrollWidth, clientWidth, scrollLeft } = inner;
      return { holder, inner, wide: scrollWidth > clientWidth + 1, more: scrollLeft + clientWidth < scrollWidth - 1 };
    });
    for (const { holder, inner, wide, more } of holders) {
      holder.classList.add("measured");
      holder.classList.toggle("wide", wide);
      inner.classList.toggle("more", more);
    }
  };
  measure();
  window.addEventListener("resize", measure, { passive: true });
  document.addEventListener("scroll", measure, { passive: true, capture: true });
  document.addEventListener("toggle", measure, { capture: true });
  document.addEventListener("fedaudit-changed", () => { prepare(); measure(); });
  const box = document.createElement("div");
  box.className = "tooltip";
  box.hidden = true;
  box.setAttribute("aria-hidden", "true");
  document.body.append(box);
  const show = (event) => {
    const hit = event.target instanceof Element ? event.target.closest(".hit[data-tip]") : null;
    box.hidden = !hit;
    if (!hit) return;
    box.textContent = hit.getAttribute("data-tip");
    const wide = document.documentElement.clientWidth;
    const left = Math.min(Math.max(event.clientX + 14, 8), wide - box.offsetWidth - 8);
    const below = event.clientY + 18;
    const top = below + box.offsetHeight > window.innerHeight ? event.clientY - box.offsetHeight - 12 : below;
    box.style.left = `${Math.max(left, 8)}px`;
    box.style.top = `${top}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("pointerleave", () => { box.hidden = true; });
  document.addEventListener("scroll", () => { box.hidden = true; }, { passive: true });
})();
