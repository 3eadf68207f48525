"use strict";
// Says what a page is when it is pointed at, reached by keyboard, or named in the address. Without this script
// the browser shows the same words as a title.
(() => {
  const map = document.querySelector(".map");
  const tip = document.getElementById("tip");
  if (!map) return;
  const rows = [...map.querySelectorAll("tr.row")].map((row) => [...row.querySelectorAll(".p")]);
  const pages = rows.flat();
  for (const page of pages) {
    page.dataset.tip = page.title;
    page.setAttribute("aria-label", page.title.replaceAll("\n", "; "));
    page.removeAttribute("title");
    page.tabIndex = -1;
  }
  let current = pages[0];
  let shown = null;
  if (current) current.tabIndex = 0;

  function place(page) {
    const at = page.getBoundingClientRect();
    const width = tip.offsetWidth;
    const height = tip.offsetHeight;
    const left = Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8));
    const below = at.bottom + 8;
    const top = below + height > window.innerHeight ? Math.max(8, at.top - height - 8) : below;
    tip.style.left = `${left}px`;
    tip.style.top = `${top}px`;
  }

  function show(page) {
    tip.replaceChildren(
      ...page.dataset.tip.split("\n").map((words, number) => {
        const line = document.createElement("div");
        const cut = words.indexOf(": ");
        if (number && cut > 0) {
          const name = document.createElement("span");
          name.className = "name";
          name.textContent = words.slice(0, cut + 2);
          line.append(name, words.slice(cut + 2));
        } else {
          line.textContent = words;
        }
        return line;
      }),
    );
    tip.hidden = false;
    shown = page;
    place(page);
  }

  function hide() {
    tip.hidden = true;
  }

  function go(page) {
    if (!page) return;
    current.tabIndex = -1;
    current = page;
    current.tabIndex = 0;
    current.focus();
    current.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(current);
  }

  function nearest(row, page) {
    const at = page.getBoundingClientRect();
    const middle = (at.left + at.right) / 2;
    let best = null;
    let distance = Infinity;
    for (const other of row) {
      const there = other.getBoundingClientRect();
      const away = Math.abs((there.left + there.right) / 2 - middle);
      if (away < distance) [best, distance] = [other, away];
    }
    return best;
  }

  const isPage = (event) => event.target instanceof Element && event.target.closest(".map .p");
  map.addEventListener("pointerover", (event) => (isPage(event) ? show(isPage(event)) : hide()));
  map.addEventListener("pointerleave", hide);
  map.addEventListener("focusin", (event) => isPage(event) && show(isPage(event)));
  map.addEventListener("focusout", hide);
  map.addEventListener("click", (event) => isPage(event) && go(isPage(event)));
  map.addEventListener("keydown", (event) => {
    const page = isPage(event);
    if (!page) return;
    const down = rows.findIndex((row) => row.includes(page));
    const across = rows[down].indexOf(page);
    const moves = {
      ArrowLeft: () => rows[down][across - 1],
      ArrowRight: () => rows[down][across + 1],
      ArrowUp: () => rows[down - 1] && nearest(rows[down - 1], page),
      ArrowDown: () => rows[down + 1] && nearest(rows[down + 1], page),
      Home: () => rows[down][0],
      End: () => rows[down].at(-1),
    };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(moves[event.key]());
  });
  window.addEventListener("scroll", () => tip.hidden || place(shown), { passive: true, capture: true });

  function follow() {
    const page = document.getElementById(location.hash.slice(1));
    if (page && pages.includes(page)) requestAnimationFrame(() => go(page));
  }
  window.addEventListener("hashchange", follow);
  follow();
})();
