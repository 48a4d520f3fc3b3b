// pages.js - what the theme leaves out for those who read with keys or a screen reader.
"use strict";
addEventListener("DOMContentLoaded", () => {
  for (const one of document.querySelectorAll("[role=heading]:not([aria-level])")) one.setAttribute("aria-level", "2");
  for (const [name, label] of [["sidebar", "All pages"], ["toc", "This page"]])
    document.querySelector(`aside.${name}-drawer`)?.setAttribute("aria-label", label);

  // A column of words keeps a minimum width next to wide numbers: the table scrolls in any case.
  for (const one of document.querySelectorAll("table.docutils td:nth-child(-n+2)"))
    if (one.textContent.length > 14) one.classList.add("words");

  // What scrolls can be reached: how wide it is changes with the window and as pictures come.
  const wide = document.querySelectorAll("pre, .table-wrapper, .cell_output, .sides, article p:has(> img)");
  const look = (one) => {
    if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  };
  const watch = new ResizeObserver((seen) => seen.forEach(({ target }) => look(target)));
  for (const one of wide) {
    watch.observe(one);
    for (const picture of one.querySelectorAll("img")) picture.addEventListener("load", () => look(one));
  }
});
