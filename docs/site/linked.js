// linked.js - a version's page: the line of SASS, PTX or CUDA under the pointer or the focus lights its lines in the
// other two lists. A row names its line of PTX in data-p and of the source in data-c.
"use strict";
for (const box of document.querySelectorAll(".three")) {
  const lists = [...box.querySelectorAll("ol")], machine = box.querySelector(".machine"), top = machine.getAttribute("href");
  const rows = lists.map((list) => [...list.children].filter((row) => row.dataset.p || row.dataset.c));
  const by = (name) => rows.map((list) => Map.groupBy(list, (row) => row.dataset[name]));
  let lit = [], links = null;
  const reveal = (row) => {
    const pane = row.closest(".scroll");
    pane.scrollTop = row.offsetTop - pane.clientHeight / 3;
  };

  // The rows of each list that belong to one: those of its line of PTX; a line of the source has many of both.
  const partners = (row, from) => rows.map((_, to) => {
    if (to === from) return [row];
    const name = from < 2 && to < 2 ? "p" : "c";
    return (row.dataset[name] && links[name][to].get(row.dataset[name])) || [];
  });

  const light = (row) => {
    const from = lists.indexOf(row.parentElement);
    if (!rows[from].includes(row)) return;
    links ??= { p: by("p"), c: by("c") };
    for (const one of lit) one.removeAttribute("aria-selected");
    const found = partners(row, from);
    lit = found.flat();
    for (const one of lit) one.setAttribute("aria-selected", "true");
    found.forEach(([first], to) => {
      if (first && to !== from) reveal(first);
    });
    if (row.dataset.c) machine.href = `${top}&line=${row.dataset.c}`;
  };

  const walk = (list, event) => {
    const own = rows[lists.indexOf(list)], at = own.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: own.length - 1 }[event.key];
    if (to === undefined || !own[to]) return;
    own[to].tabIndex = -1;
    own[to].focus({ preventScroll: true });
    reveal(own[to]);
    event.preventDefault();
  };

  for (const list of lists) {
    const row = ({ target }) => { if (target.closest("li") && !lit.includes(target)) light(target.closest("li")); };
    list.addEventListener("pointermove", (event) => { if (event.movementX || event.movementY) row(event); }); // no scroll
    list.addEventListener("click", row);
    list.addEventListener("focusin", row);
    list.addEventListener("keydown", (event) => walk(list, event));
  }
  for (const row of box.querySelectorAll("li")) row.setAttribute("role", "option");
}
