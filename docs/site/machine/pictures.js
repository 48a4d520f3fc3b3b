// pictures.js - pictures of the machine's state: tiles of a matrix, the wavefronts of an access, copies of the engine.
//
// Each function takes what the worker saw and returns an element; nothing here asks the worker or keeps state.
"use strict";
const made = (name, className, text) => {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

// A matrix as colors, blue above and orange below zero; what is under the pointer is said below. at(row, column) is a
// number, or null where nothing is known.
function heat(title, rows, columns, at) {
  const figure = made("figure", "heat"), canvas = made("canvas"), said = made("figcaption", "", title);
  const values = Array.from({ length: rows * columns }, (_, i) => at(Math.floor(i / columns), i % columns));
  const most = Math.max(1e-30, ...values.map((one) => (one !== null && Number.isFinite(one) ? Math.abs(one) : 0)));
  const size = Math.max(2, Math.min(9, Math.floor(560 / columns), Math.floor(288 / rows)));
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.cssText = `width:${columns * size}px;height:${Math.max(8, rows * size)}px`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows);
  values.forEach((one, i) => {
    const part = one === null ? 0 : Number.isFinite(one) ? Math.abs(one) / most : 1;
    image.data.set(one === null ? [128, 128, 128, 90] : [...(one < 0 ? [217, 72, 15] : [28, 126, 214]),
      20 + 235 * part], 4 * i);
  });
  pen.putImageData(image, 0, 0);
  canvas.onpointermove = (event) => {
    const column = Math.min(columns - 1, Math.floor((event.offsetX / canvas.clientWidth) * columns));
    const row = Math.min(rows - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows));
    const value = values[row * columns + column];
    said.textContent = `${title}; row ${row}, column ${column}: ${value === null ? "not known" : value}`;
  };
  figure.append(canvas, said);
  return figure;
}

// ---- an access to shared memory ----------------------------------------------------------------------------------------

// The wavefronts of an access, as counters.c counts them: a phase of lanes after another, and in each phase a word of a
// bank after another. Each wavefront is, by bank, the lanes that it serves.
function wavefrontsOf({ width, addresses }, ptx) {
  const matrices = ptx.startsWith("ldmatrix") ? +(/\.x([124])\b/.exec(ptx)?.[1] ?? 1) : 0;
  const lanes = matrices || width >= 16 ? 8 : width === 8 ? 16 : 32, found = [];
  for (let first = 0; first < (matrices ? 8 * matrices : 32); first += lanes) {
    const words = Array.from({ length: 32 }, () => new Map()); // by bank: word to lanes
    for (let lane = first; lane < first + lanes; lane++) {
      const address = addresses[lane];
      if (address === 0xffffffff) continue;
      for (let word = address >>> 2; word <= (address + width - 1) >>> 2; word++) {
        const bank = words[word & 31];
        bank.set(word, [...(bank.get(word) ?? []), lane]);
      }
    }
    const deep = Math.max(...words.map((one) => one.size));
    for (let k = 0; k < deep; k++) found.push({ first, banks: words.map((one) => [...one.values()][k] ?? []) });
  }
  return found;
}

function wavefronts(access, ptx) {
  const found = wavefrontsOf(access, ptx), box = made("div"), grid = made("div", "banks");
  grid.append(made("span", "", ""), ...Array.from({ length: 32 }, (_, bank) => made("span", "", bank)));
  found.forEach(({ first, banks }, k) => {
    grid.append(made("span", "phase", `${k + 1}`));
    grid.append(...banks.map((lanes) => {
      const cell = made("span", "", lanes.length > 1 ? `${lanes[0]}+` : lanes[0] ?? "");
      if (lanes.length) cell.style.cssText = `background:${hue(lanes[0])};color:#fff`;
      cell.title = lanes.length ? `wavefront ${k + 1} of the lanes from ${first} on: lane ${lanes.join(", ")}` : "";
      return cell;
    }));
  });
  const phases = new Set(found.map((one) => one.first)).size;
  const words = `${found.length} wavefront${found.length === 1 ? "" : "s"}, ${phases} without bank conflicts. First row: ` +
    `banks. Each row below is a wavefront: the lane that it serves in a bank (a + where lanes share a word). ` +
    `Each lane touches ${access.width} bytes.`;
  box.append(grid, made("p", "note", words));
  return box;
}

// ---- wgmma -------------------------------------------------------------------------------------------------------------

// A matrix of 16-bit numbers in chunks of eight, as emu_view_product() lists them: [row of M or N][k].
function fromChunks(shared, chunks, alongK, read) {
  const bytes = new DataView(shared.buffer, shared.byteOffset, shared.byteLength);
  return (row, k) => {
    const block = row >> 3, half = k >> 3, [line, column] = alongK ? [row & 7, k & 7] : [k & 7, row & 7];
    const at = chunks[16 * block + 8 * half + line] + 2 * column;
    return at + 2 <= bytes.byteLength ? read(bytes.getUint16(at, true)) : null;
  };
}

// A, B and the sums of the wgmma that is a warp's next instruction. Factors have 16 bits.
function product({ product: it, operands, shared, shown }, read) {
  const box = made("div", "matrices");
  if (it.numbers > 1) return made("p", "note", "factors of this type are not drawn");
  const own = 16 * (shown % 4), rows = `rows ${own} to ${own + 15}, those of this warp`;
  if (it.registers) {
    const a = operands.slice(5, 9);
    const value = (row, k) => {
      const one = a[(row >> 3) + 2 * (k >> 3)];
      return one?.lanes ? read(one.lanes[(row & 7) * 4 + ((k & 7) >> 1)] >>> (16 * (k & 1)) & 0xffff) : null;
    };
    box.append(heat(`A, ${rows}, from registers: 16 × 16`, 16, 16, value));
  } else {
    box.append(heat("A, from shared memory: 64 × 16", 64, 16, fromChunks(shared, it.chunks, it.a_along_k, read)));
  }
  const b = fromChunks(shared, it.chunks.subarray(128), it.b_along_k, read);
  box.append(heat(`B, from shared memory: 16 × ${it.columns}`, 16, it.columns, (k, column) => b(column, k)));
  const sum = (row, column) => {
    const bits = it.sums[128 * (column >> 3) + 32 * (2 * (row >> 3) + (column & 1)) + (row & 7) * 4 + ((column & 7) >> 1)];
    return bits === 0xffffffff ? null : float(bits);
  };
  box.append(heat(`sums before, ${rows}: 16 × ${it.columns}; gray: not known`, 16, it.columns, sum));
  return box;
}

// ---- copies of the engine ----------------------------------------------------------------------------------------------

// A copy's box in its tensor: dimension 0 from left to right, all others one below the other.
function tile(copy) {
  const wide = copy.sizes[0], high = copy.sizes.slice(1).reduce((all, one) => all * one, 1);
  let top = 0, rows = 1, step = 1;
  for (let i = 1; i < copy.sizes.length; i++) {
    top += copy.corner[i] * step;
    rows *= copy.box[i];
    step *= copy.sizes[i];
  }
  const svg = `<svg viewBox="0 0 ${wide} ${high}" preserveAspectRatio="none" class="tile" aria-hidden="true">` +
    `<rect width="${wide}" height="${high}" class="tensor"/><rect x="${copy.corner[0]}" y="${top}" ` +
    `width="${copy.box[0]}" height="${rows}" class="box"/></svg>`;
  return svg;
}

const SWIZZLES = ["", ", swizzle of 32 bytes", ", swizzle of 64 bytes", ", swizzle of 128 bytes"];

function copies(bulk) {
  if (!bulk.length) return made("p", "note", "none");
  const list = made("ul", "copies");
  for (const one of bulk) {
    const item = made("li"), boxed = one.box.length;
    if (boxed) item.innerHTML = tile(one);
    const what = boxed ? `${one.box.join(" × ")} elements of ${one.of} from (${one.corner.join(", ")})` : one.of;
    item.append(`${what}, ${one.bytes} bytes ${one.store ? "out of" : "to"} shared memory ${one.shared}` +
      `${SWIZZLES[one.swizzle] ?? ""}; issued by warp ${one.warp}${one.store ? "" : `, mbarrier ${one.mbarrier}`}`);
    list.append(item);
  }
  return list;
}
