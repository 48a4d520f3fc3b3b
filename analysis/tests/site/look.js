// What is wrong with the page in the window: text that is hard to read, cut off or off the side.
// Returns a list of sentences. `least` is the contrast ratio that text needs, `smallest` its size in px.
({ least, smallest }) => {
  const found = new Set();
  for (const one of document.querySelectorAll("details.more")) one.open = true;
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (color) => {
    if (!known.has(color)) {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = color;
      paint.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
      known.set(color, [r, g, b, a / 255]);
    }
    return known.get(color);
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const probe = document.documentElement.appendChild(document.createElement("div"));
  probe.style.background = "Canvas";
  const canvas = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3]) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), canvas);
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => {
      const c = part / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const opacity = (element) => {
    let all = 1;
    for (let at = element; at; at = at.parentElement) all *= parseFloat(getComputedStyle(at).opacity);
    return all;
  };
  const where = (element) => {
    const kind = typeof element.className === "string" && element.className ? "." + element.className.split(" ")[0] : "";
    return element.tagName.toLowerCase() + kind;
  };

  // ---- contrast and size of every text that is rendered
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const styles = new Map();
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim();
    const element = walk.currentNode.parentElement;
    if (!text || !element || element.closest("script, style, noscript, title, template")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    range.selectNodeContents(walk.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width <= 1 || box.height <= 1) continue;
    const style = getComputedStyle(element);
    if (style.clip !== "auto" && style.position === "absolute") continue; // for screen readers alone
    const drawn = element instanceof SVGElement;
    const scale = drawn && element.getScreenCTM() ? Math.hypot(element.getScreenCTM().a, element.getScreenCTM().b) : 1;
    const size = parseFloat(style.fontSize) * scale;
    const color = rgba(drawn ? style.fill : style.color);
    const back = background(element);
    const front = over([...color.slice(0, 3), color[3] * opacity(element)], back);
    const key = [front, back, Math.round(size), where(element)].join();
    if (styles.has(key)) continue;
    styles.set(key, true);
    const ratio = contrast(front, back);
    const words = JSON.stringify(text.slice(0, 30));
    if (ratio < least) found.add(`contrast ${ratio.toFixed(2)} of ${words} in ${where(element)}: less than ${least}`);
    if (size < smallest) found.add(`text of ${size.toFixed(1)} px, ${words} in ${where(element)}: less than ${smallest} px`);
  }

  // ---- what is off the side, or cut off where nobody can scroll to it
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) {
    const widest = [...document.body.querySelectorAll("*")]
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
      .filter((element) => ![...element.children].some((child) => child.getBoundingClientRect().right > innerWidth + 1));
    found.add(`the page is ${wide} px wide in a window of ${innerWidth} px: ${widest.slice(0, 3).map(where).join(", ")}`);
  }
  for (const element of document.body.querySelectorAll("*")) {
    const hidden = ["hidden", "clip"].includes(getComputedStyle(element).overflowX);
    if (hidden && element.clientWidth > 1 && element.scrollWidth > element.clientWidth + 1 && element.innerText?.trim())
      found.add(`${where(element)} cuts off ${element.scrollWidth - element.clientWidth} px of its text`);
  }

  // ---- labels of pictures that overlap
  for (const picture of document.querySelectorAll("svg")) {
    const labels = [...picture.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    labels.forEach(([one, a], index) => {
      for (const [other, b] of labels.slice(index + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3)
          found.add(`labels of a picture overlap: ${one.textContent.trim()} and ${other.textContent.trim()}`);
      }
    });
  }
  for (const image of document.images)
    if (image.complete && !image.naturalWidth) found.add(`the picture ${image.getAttribute("src")} does not load`);
  return [...found];
}
