// machine.js - the page of the machine. A worker owns the emulator; the page asks it, and draws what it answers.
//
// The whole launch runs first. Its steps say which warp ran which instruction, so every way to a step, on or back, is a
// search in that list; the worker then shows the machine as it was before the step.
"use strict";
const $ = (id) => document.getElementById(id);
const book = window.flashladder;
const STEP_WARP = 20, WARP_MASK = 31, CTA_SHIFT = 25, INSTRUCTION = (1 << STEP_WARP) - 1;
const hue = (warp) => `hsl(${(warp * 67 + 210) % 360} 62% 29%)`;
const escape = (text) => text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);

// ---- the worker ------------------------------------------------------------------------------------------------------

const unpack = async (base64) => {
  const packed = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
const worker = new Worker(URL.createObjectURL(new Blob([book.worker], { type: "text/javascript" })));
const waiting = new Map();
let asked = 0;
const ask = (name, args) => new Promise((done, failed) => {
  waiting.set(++asked, [done, failed]);
  worker.postMessage({ id: asked, name, args });
});
worker.onmessage = ({ data }) => {
  const [done, failed] = waiting.get(data.id);
  waiting.delete(data.id);
  data.error ? failed(data.error) : done(data.result);
};

// ---- state -----------------------------------------------------------------------------------------------------------

let launch = null; // what the whole run left: steps, code, findings, counters
let step = 0, warp = 0, version = "", source = "", original = "", rows = [], seen = null;
let turns = []; // pairs of a step and the warp that was chosen by hand to have it
const instructionOf = (at) => launch.code[launch.steps[at] & INSTRUCTION];
const warpOf = (at) => (launch.steps[at] >>> STEP_WARP) & WARP_MASK;
const ctaOf = (at) => launch.steps[at] >>> CTA_SHIFT;
const mine = (at) => warpOf(at) === warp && ctaOf(at) === ctaOf(step);

function seek(from, direction, wanted) {
  for (let at = from; at >= 0 && at < launch.steps.length; at += direction) if (wanted(at)) return at;
  return -1;
}

const MULTIPLIES = /^(mma|wgmma\.mma)/, COPIES = /^cp\.async/;

// The steps at which a warp begins its KV loop again: of its jumps back the shortest between which it takes exponentials
// and multiplies or, where it only copies, copies.
function passes() {
  launch.passes ??= new Map();
  const key = ctaOf(step) * 32 + warp;
  if (!launch.passes.has(key)) launch.passes.set(key, passesOf(key));
  return launch.passes.get(key);
}

function passesOf(key) {
  const own = [];
  launch.steps.forEach((one, at) => { if (one >>> STEP_WARP === key) own.push(at); });
  const all = own.map((at) => launch.steps[at] & INSTRUCTION), loops = new Map();
  for (let k = 1; k < all.length; k++) {
    if (all[k] > all[k - 1]) continue;
    const back = `${all[k]} ${all[k - 1]}`;
    loops.set(back, [...(loops.get(back) ?? []), own[k]]);
  }
  const ran = new Set(all);
  const does = (first, last, what) => {
    for (let at = first; at <= last; at++) if (ran.has(at) && what.test(launch.code[at].ptx)) return true;
    return false;
  };
  const sorted = [...loops].map(([back, at]) => [...back.split(" ").map(Number), at])
    .sort((a, b) => a[1] - a[0] - (b[1] - b[0]));
  const found = sorted.find(([first, last]) => does(first, last, MULTIPLIES) && does(first, last, /^ex2/)) ??
    sorted.find(([first, last]) => does(first, last, COPIES));
  return new Set(found?.[2] ?? []);
}

const KINDS = {
  "barrier": (code) => /^(bar|barrier)/.test(code.ptx),
  "mbarrier": (code) => /^mbarrier/.test(code.ptx),
  "ldmatrix": (code) => code.ptx.startsWith("ldmatrix"),
  "mma": (code) => code.ptx.startsWith("mma"),
  "wgmma": (code) => code.ptx.startsWith("wgmma.mma"),
  "copy": (code) => COPIES.test(code.ptx),
  "tcgen05": (code) => code.ptx.startsWith("tcgen05"),
  "exponential": (code) => code.ptx.startsWith("ex2"),
  "shuffle": (code) => code.ptx.startsWith("shfl"),
  "store": (code) => code.ptx.startsWith("st."),
  "KV block": (code, at) => passes().has(at),
};

// ---- drawing ---------------------------------------------------------------------------------------------------------

function drawSource() {
  const hidden = new Set(book.versions[version].hidden);
  $("source").replaceChildren(...source.split("\n").map((line, i) => {
    const row = document.createElement("div");
    row.className = hidden.has(i + 1) ? "row other" : "row";
    row.innerHTML = `<span class="chips"></span><span class="count"></span><button class="number" tabindex="-1"
      title="run to line ${i + 1}">${i + 1}</button><span></span>`;
    row.lastChild.textContent = line || " ";
    row.querySelector("button").onclick = () => toLine(i + 1);
    return row;
  }));
  rows = [...$("source").children];
  $("all-lines").hidden = !hidden.size;
}

function drawResult() {
  const { status, counters, ms, findings } = launch;
  const ended = ["finished; no findings", "finished, with findings", "rejected", "could not continue"];
  $("result").textContent = `${ended[status]}: ${launch.steps.length} steps, ${counters.executed} warp instructions, ` +
    `${counters.wavefronts} wavefronts of shared memory (${counters.ideal} without bank conflicts), ` +
    `${counters.sectors} sectors of global memory; emulated in ${ms.toFixed(0)} ms`;
  $("findings").replaceChildren(...findings.map((one) => {
    const item = document.createElement("li");
    item.innerHTML = `<button>line ${one.here.line}, PTX ${one.here.ptx_line}</button> `;
    item.append(`${one.class} (${one.count} times)\n${one.message}`);
    item.firstChild.onclick = () => { toLine(one.here.line); showPtxLine(one.here.ptx_line); };
    return item;
  }));
  const executed = new Map();
  for (const [, line, count] of counters.rows) executed.set(line, (executed.get(line) ?? 0) + count);
  rows.forEach((row, i) => { row.children[1].textContent = executed.get(i + 1) || ""; });
  const bad = new Set(findings.flatMap((one) => [one.here.line, one.other.line]));
  rows.forEach((row, i) => row.lastChild.classList.toggle("bad", bad.has(i + 1)));
}

function clearFindings() {
  $("findings").replaceChildren();
  for (const row of rows) row.lastChild.classList.remove("bad");
}

// The picture of a whole launch is drawn once.
function orderOf() {
  const steps = launch.steps.length, canvas = made("canvas");
  canvas.width = 600;
  canvas.height = 1 + Math.max(...seenWarps());
  const pen = canvas.getContext("2d");
  for (let at = 0; at < steps; at += Math.max(1, Math.floor(steps / 6000))) {
    pen.fillStyle = hue(warpOf(at));
    pen.fillRect(Math.floor((600 * at) / steps), warpOf(at), Math.max(1, 600 / steps), 1);
  }
  return canvas;
}

function drawOrder() {
  const whole = (launch.order ??= orderOf()), canvas = $("order"), steps = launch.steps.length, warps = whole.height;
  canvas.width = whole.width;
  canvas.height = warps;
  canvas.style.height = `${Math.max(24, 9 * warps)}px`;
  const pen = canvas.getContext("2d");
  pen.drawImage(whole, 0, 0);
  pen.fillStyle = "#e8590c";
  pen.fillRect(Math.min(598, Math.floor((600 * step) / steps)), 0, 2, warps);
}

function seenWarps() {
  launch.warps ??= [...new Set(launch.steps.map((one) => (one >>> STEP_WARP) & WARP_MASK))];
  return launch.warps;
}

const half = (bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
};
const view = new DataView(new ArrayBuffer(4));
const float = (bits) => { view.setUint32(0, bits); return view.getFloat32(0); };
const number = (value) => (Math.abs(value) >= 10 ? value.toFixed(0) : value.toFixed(1));

// Cells of {value, title}, or null where the slot holds another register now.
function matrix(title, cells, columns, show = number) {
  const most = Math.max(1e-9, ...cells.map((one) => (one && Number.isFinite(+one.value) ? Math.abs(+one.value) : 0)));
  const drawn = cells.map((one) => {
    if (!one) return "<span>·</span>";
    const part = Number.isFinite(+one.value) ? Math.min(1, Math.abs(+one.value) / most) : 1;
    const color = one.value < 0 ? "#d9480f" : "#1c7ed6";
    return `<span title="${one.title}: ${one.value}" style="background:color-mix(in srgb, ${color} ` +
      `${(part * 40).toFixed(0)}%, var(--back))">${show(one.value)}</span>`;
  });
  return `<figure><div class="matrix" style="grid-template-columns:repeat(${columns},auto)">${drawn.join("")}</div>` +
    `<figcaption>${escape(title)}</figcaption></figure>`;
}

// The fragments of mma.m16n8k16 as the matrices that they are parts of: result before, A, B, in this order of registers.
function fragments(found, brain) {
  const value = (bits) => (brain ? float((bits & 0xffff) << 16) : half(bits & 0xffff));
  const cell = (register, lane, get) => (register.lanes
    ? { value: get(register.lanes[lane]), title: `${register.name}, lane ${lane}` } : null);
  const A = [], B = [], C = [];
  for (let row = 0; row < 16; row++) {
    for (let column = 0; column < 16; column++) {
      const lane = (row % 8) * 4 + ((column % 8) >> 1);
      const register = found[4 + (row >> 3) + 2 * (column >> 3)];
      A.push(cell(register, lane, (bits) => value(bits >>> (16 * (column & 1)))));
      if (column < 8) {
        const k = row, n = column, holder = n * 4 + ((k % 8) >> 1);
        B.push(cell(found[8 + (k >> 3)], holder, (bits) => value(bits >>> (16 * (k & 1)))));
        C.push(cell(found[10 + 2 * (row >> 3) + (column & 1)], (row % 8) * 4 + (column >> 1), float));
      }
    }
  }
  const names = (first, count) => found.slice(first, first + count).map((one) => one.name).join(" ");
  return `<div class="matrices">${matrix(`A, 16 × 16: ${names(4, 4)}`, A, 16)}${matrix(`B, 16 × 8: ${names(8, 2)}`, B, 8)}` +
    `${matrix(`sum before, 16 × 8: ${names(10, 4)}`, C, 8)}</div>`;
}

function lanesOf(title, register) {
  if (!register.lanes) return `<p class="note">${escape(title)}: not available: the emulator has reused this register's slot</p>`;
  const isFloat = register.name.startsWith("%f");
  const cells = register.lanes.map((one, lane) => ({ value: isFloat ? float(one) : String(one), title: `lane ${lane}` }));
  const show = (value) => (isFloat ? value.toPrecision(3) : Number(value) > 99999 ? `0x${BigInt(value).toString(16)}` : value);
  return matrix(title, cells, 8, show);
}

// A list of more than eight registers by its first and last.
const briefly = (ptx) => ptx.replace(/\{([^,{}]+),(?:[^,{}]+,){6,}([^,{}]+)\}/, "{$1, …,$2}");

function drawOperands() {
  const at = seen.warps[seen.shown].instruction;
  if (at < 0) { $("operands").textContent = "this warp is done"; return; }
  const code = launch.code[at], found = seen.operands;
  let drawn = `<p><code title="${escape(code.ptx)}">${escape(briefly(code.ptx))}</code> <span class="note">PTX line ${code.ptx_line}</span></p>`;
  if (code.ptx.startsWith("mma.sync") && found.length >= 14) drawn += fragments(found, code.ptx.includes("bf16"));
  else if (!seen.product) drawn += `<div class="matrices">${found.slice(0, 6).map((one) =>
    lanesOf(`${one.name}${one.written ? ", before" : ""}`, one)).join("")}</div>`;
  $("operands").innerHTML = drawn;
  if (seen.product) $("operands").append(product(seen, factors(code.ptx)));
}

const factors = (ptx) => (ptx.includes("bf16") ? (bits) => float(bits << 16) : half);

function drawBanks() {
  if (!seen.access) { $("banks").innerHTML = '<p class="note">the next instruction does not access shared memory by address</p>'; return; }
  $("banks").replaceChildren(wavefronts(seen.access, launch.code[seen.warps[seen.shown].instruction].ptx));
}

// Of nobody, a copy, and each warp: as words of an image.
let writerColors = null;
function colorsOfWriters() {
  if (writerColors) return writerColors;
  const canvas = made("canvas");
  canvas.width = 34;
  canvas.height = 1;
  const pen = canvas.getContext("2d");
  for (let key = 0; key < 34; key++) {
    pen.fillStyle = key === 0 ? "#000" : key === 1 ? "#f03e3e" : hue(key - 2);
    pen.fillRect(key, 0, 1, 1);
  }
  return (writerColors = new Uint32Array(pen.getImageData(0, 0, 34, 1).data.buffer));
}

function drawShared() {
  const canvas = $("shared"), lines = Math.ceil(seen.shared.length / 128);
  if (!seen.writers) return;
  canvas.width = 32;
  canvas.height = lines;
  canvas.style.height = `${Math.min(420, Math.max(60, lines / 2))}px`;
  const pen = canvas.getContext("2d"), image = pen.createImageData(32, lines), words = new Uint32Array(image.data.buffer);
  const colors = colorsOfWriters();
  for (let word = 0; word < seen.writers.length; word++) {
    const who = seen.writers[word];
    words[word] = colors[who < 2 ? who : 2 + ((who - 2) >>> 25)];
  }
  pen.putImageData(image, 0, 0);
  canvas.onpointermove = (event) => {
    const column = Math.floor((event.offsetX / canvas.clientWidth) * 32);
    const word = 32 * Math.floor((event.offsetY / canvas.clientHeight) * lines) + column, who = seen.writers[word];
    if (who === undefined) return;
    const at = who < 2 ? null : launch.code[(who - 2) & INSTRUCTION], thread = (who - 2) >>> 20;
    const bits = new DataView(seen.shared.buffer, seen.shared.byteOffset).getUint32(4 * word, true);
    const by = who === 0 ? "not written yet" : who === 1 ? "a copy is in flight"
      : `thread ${thread} (warp ${thread >> 5}) wrote it at line ${at?.line}: ${at?.ptx}`;
    $("word").textContent = `offset ${4 * word}, bank ${column}: ${number(half(bits & 0xffff))}, ` +
      `${number(half(bits >>> 16))} as fp16; ${by}`;
  };
}

const underWay = ({ copies: some, products }) =>
  (some ? `, ${some} cp.async in flight` : "") + (products ? `, ${products} wgmma in flight` : "");

let marked = []; // rows of the source at which a warp is
const CHIPS = 3; // of warps next to a line; with more warps the last one is shown too

function drawWarps() {
  $("cta").textContent = seen.cta;
  const lines = seen.warps.map((one, i) => {
    const code = one.instruction < 0 ? null : launch.code[one.instruction];
    return `<tr class="${i === seen.shown ? "here" : ""}"><td><button class="chip" data-warp="${i}"
      style="background:${hue(i)}" aria-label="show warp ${i}">${i}</button><td>${i === seen.turn ? "runs" : one.state}${underWay(one)}
      <td>${one.state === "ready" && i !== seen.turn ? `<button data-turn="${i}">runs next</button>` : ""}
      <td>${code ? code.callers.join(" ← ") : ""}<td class="code">${code ? escape(code.ptx.slice(0, 70)) : ""}</tr>`;
  });
  $("warps").innerHTML = `<tr><th>warp<th>state<th>turn<th>line ← called from<th>PTX</tr>${lines.join("")}`;
  for (const row of marked) { row.classList.remove("here"); row.firstChild.replaceChildren(); }
  marked = [];
  seen.warps.forEach((one, i) => {
    const row = one.instruction < 0 ? null : rows[launch.code[one.instruction].line - 1];
    if (!row) return;
    marked.push(row);
    const chip = made("span", "chip", i), there = row.firstChild.children;
    chip.style.background = hue(i);
    if (there.length < CHIPS) row.firstChild.append(chip);
    else there[CHIPS - 1].textContent = `${there[CHIPS - 1].textContent.split("…")[0]}…${i}`;
    if (i === seen.shown) row.classList.add("here");
  });
  $("turns").textContent = turns.length ? `by hand: ${turns.map(([at, who]) => `warp ${who} at step ${at + 1}`).join(", ")}` : "";
  $("no-turns").hidden = !turns.length;
  const here = $("source").querySelector(".here");
  if (here) {
    const box = $("source").getBoundingClientRect(), at = here.getBoundingClientRect();
    if (at.top < box.top + 40 || at.bottom > box.bottom - 40) $("source").scrollTop += at.top - box.top - box.height / 2.5;
  }
}

function drawMbarriers() {
  const found = seen.mbarriers;
  $("mbarriers").innerHTML = found.length ? `<table><tr><th>address<th>phase<th>arrivals pending<th>bytes awaited</tr>${
    found.map((one) => `<tr><td>${one.address}<td>${one.phase}<td>${one.pending} of ${one.expected}<td>${one.bytes}</tr>`)
      .join("")}</table>` : '<p class="note">none</p>';
}

const drawCopies = () => $("copies").replaceChildren(copies(seen.bulk));

// The columns that are allocated, and what the tensor core has not done yet, in the order in which it was issued.
function drawTensor() {
  const found = seen.tensor;
  $("tensor-of").hidden = !found;
  if (!found) return;
  const columns = found.allocated.map(([first, count]) => `columns ${first} to ${first + count - 1}`).join(", ");
  $("tensor").replaceChildren(made("p", "", columns || "no column is allocated"),
    ...found.jobs.map((one) => made("p", "", `warp ${one.warp}: ${launch.code[one.instruction].ptx}`)));
}

function drawRegister() {
  const name = $("register").value.trim();
  $("value").innerHTML = !name ? "" : seen.register ? lanesOf(name, { name, lanes: seen.register })
    : '<p class="note">there is no such register here, or the emulator has reused its slot</p>';
}

// ---- S, m, l, P, O against the reference -------------------------------------------------------------------------------

// Of the build of a version that dumps them, after the KV block that is chosen; every error next to its largest value.
async function drawBlock() {
  const name = version, box = $("block"), Q_block = +$("Q-block").value, step = +$("KV-step").value;
  await data(`${name}.dump`);
  const program = withSymbols(new TextDecoder().decode(await unpack(book.versions[name].dump)));
  const problem = { seq: +$("seq").value, schedule: +$("schedule").value, turns: [] };
  const { shape: [B_r, B_c, d, KV_blocks, Q_blocks], order, got, wanted } =
    await ask("blocks", { program, problem, Q_block, step });
  if (name !== version) return;
  choices($("Q-block"), Q_blocks, (one) => one);
  choices($("KV-step"), KV_blocks, (one) => `${one + 1}: block ${order[one]}`);
  const wide = { S: B_c, m: 1, P: B_c, l: 1, O: d };
  box.replaceChildren(...Object.keys(wide).map((one) => {
    const flat = wide[one] === 1, rows = flat ? 1 : B_r, columns = flat ? B_r : wide[one];
    const most = wanted[one].reduce((all, value) => Math.max(all, Math.abs(value)), 0);
    const worst = got[one].reduce((all, value, i) => Math.max(all, Math.abs(value - wanted[one][i])), 0);
    const size = flat ? `${B_r} rows` : `${rows} × ${columns}`;
    const error = `${one}, ${size}: off by ${worst.toPrecision(2)} at most, of ${most.toPrecision(3)}`;
    const figure = heat(error, rows, columns, (row, column) => got[one][row * columns + column]);
    figure.dataset.error = worst / most;
    return figure;
  }));
  box.dataset.step = step;
}

function choices(select, count, name) {
  if (select.options.length === count) return;
  select.replaceChildren(...Array.from({ length: count }, (_, i) => new Option(name(i), i)));
}

function resetBlock() {
  const has = book.dumps.includes(version);
  $("block-of").hidden = !has;
  for (const one of ["Q-block", "KV-step"]) $(one).replaceChildren(new Option(one === "Q-block" ? 0 : 1, 0));
  $("block").replaceChildren();
  delete $("block").dataset.step;
}

// ---- going to a step -------------------------------------------------------------------------------------------------

let going = null; // the step to show next, while another one is being drawn
// What the worker answered of late, by step, warp and register: it replays the launch for each, so the way back and, as
// the page asks while nobody does, the way on need not wait for it.
const LOOKS = 32, IDLE = 50; // ms
let looks = new Map(), idle = 0;

function look(at, of) {
  const asking = { step: at, warp: of, register: $("register").value.trim() }, key = Object.values(asking).join();
  const found = looks.get(key) ?? ask("look", asking);
  looks.delete(key);
  looks.set(key, found); // the newest is the last
  if (looks.size > LOOKS) looks.delete(looks.keys().next().value);
  return found;
}

// Once nobody does anything: the address names the step, which takes a browser longer than all drawing.
function rest() {
  clearTimeout(idle);
  const from = launch;
  idle = setTimeout(() => {
    if (launch !== from) return;
    const parameters = new URLSearchParams({ v: version, seq: $("seq").value, order: $("schedule").value, step, warp });
    if (turns.length) parameters.set("turns", turns.map((one) => one.join(".")).join());
    history.replaceState(null, "", `#${parameters}`);
    if (step + 1 < launch.steps.length) look(step + 1, warpOf(step + 1));
  }, IDLE);
}


async function show(to, chosen = warp) {
  if (!launch || !launch.steps.length) return;
  step = Math.max(0, Math.min(launch.steps.length - 1, to));
  warp = chosen;
  if (going !== null) { going = step; return; }
  do {
    going = step;
    const found = await look(going, warp);
    if (found.ended) break;
    seen = found;
  } while (going !== step);
  going = null;
  if (!seen) return;
  $("time").max = launch.steps.length - 1;
  $("time").value = step;
  $("where").textContent = `step ${step + 1} of ${launch.steps.length}`;
  drawWarps();
  drawOperands();
  drawBanks();
  drawShared();
  drawMbarriers();
  drawCopies();
  drawTensor();
  drawRegister();
  drawOrder();
  document.body.dataset.step = step;
  rest();
}

const go = (at, chosen) => { if (at >= 0) return show(at, chosen ?? warpOf(at)); $("where").textContent = "no such step"; };
const toKind = () => go(seek(step + 1, 1, (at) => mine(at) && KINDS[$("kind").value](instructionOf(at), at)));
// The next step that is there or, where none follows, the first of all.
const toPlace = (there) => {
  const on = seek(step + 1, 1, there);
  return go(on >= 0 ? on : seek(0, 1, there));
};
const toLine = (line) => toPlace((at) => instructionOf(at).line === line);
function nextLine(direction) {
  const line = instructionOf(step).line;
  const other = seek(step + direction, direction, (at) => mine(at) && instructionOf(at).line !== line);
  if (direction > 0 || other < 0) return go(other);
  const there = instructionOf(other).line; // back: to where that line begins
  const before = seek(other, -1, (at) => mine(at) && instructionOf(at).line !== there);
  return go(seek(before + 1, 1, mine));
}

// ---- programs --------------------------------------------------------------------------------------------------------

function showPtxLine(line) {
  const text = $("text"), lines = text.value.split("\n"), start = lines.slice(0, line - 1).join("\n").length + (line > 1);
  text.focus({ preventScroll: true });
  text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  text.scrollTop = Math.max(0, (line - 8) * parseFloat(getComputedStyle(text).lineHeight));
}

function tab(name) {
  for (const one of ["source", "ptx"]) {
    $(one).hidden = one !== name;
    if (one === "source") $("columns").hidden = one !== name;
    $(`tab-${one}`).setAttribute("aria-selected", one === name);
  }
}

// The entry's symbol names the configuration, and the page shows a short name instead.
const withSymbols = (program) => {
  const { entry, symbol } = book.versions[version];
  return program.replaceAll(new RegExp(`(?<![\\w$])${entry}(?![\\w$])`, "g"), () => symbol);
};

async function run(shown) {
  const program = withSymbols(shown);
  $("refusal").textContent = "";
  try {
    const problem = { seq: +$("seq").value, schedule: +$("schedule").value, turns };
    clearTimeout(idle);
    looks = new Map();
    launch = await ask("run", { program, problem });
  } catch (refused) {
    $("refusal").textContent = refused.line ? `line ${refused.line}: ${refused.text}` : refused.text;
    $("result").textContent = $("refusal").textContent;
    $("where").textContent = "rejected";
    clearFindings();
    if (refused.line) { tab("ptx"); showPtxLine(refused.line); }
    launch = null;
    return false;
  }
  drawResult();
  return true;
}

const loaded = new Map();
function data(name) {
  const [of, dump] = name.split("."), there = book.versions[of];
  if (dump ? there?.dump : there) return Promise.resolve(); // in the page itself
  if (!loaded.has(name)) {
    loaded.set(name, new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = done;
      script.onerror = () => failed(new Error(`data/${name}.js does not load`));
      document.head.append(script);
    }));
  }
  return loaded.get(name);
}

// Where the address bar says: a step, or the n-th instruction of a kind or of a line, of a warp. It is of the first CTA
// that has one: where slices share a Q block, CTA 0 has no work.
function placeOf(wanted) {
  if (wanted.has("step")) return [+wanted.get("step"), +(wanted.get("warp") ?? 0)];
  [step, warp] = [0, +(wanted.get("warp") ?? 0)];
  const own = wanted.has("warp") || !wanted.has("line") ? warp : -1, kind = KINDS[wanted.get("kind")], line = +(wanted.get("line") ?? 0);
  const there = (one) => (own < 0 || warpOf(one) === own) &&
    (kind ? kind(instructionOf(one), one) : instructionOf(one).line === line);
  const first = kind || line ? seek(0, 1, there) : 0;
  let left = +(wanted.get("n") ?? 1);
  const at = left === 1 || first < 0 ? first
    : seek(first, 1, (one) => ctaOf(one) === ctaOf(first) && there(one) && --left === 0);
  return [Math.max(0, at), own < 0 ? warpOf(Math.max(0, at)) : own];
}

async function open(name, wanted = new URLSearchParams()) {
  $("where").textContent = "loading";
  await data(name);
  version = name;
  $("version").value = name;
  original = new TextDecoder().decode(await unpack(book.versions[name].ptx));
  source = new TextDecoder().decode(await unpack(book.versions[name].source));
  $("text").value = original;
  drawSource();
  resetBlock();
  turns = (wanted.get("turns") ?? "").split(",").filter(Boolean).map((one) => one.split(".").map(Number));
  if (await run(original)) await show(...placeOf(wanted));
  document.body.dataset.ready = name;
}

// The launch again, in which a warp has the turn before the step that is shown; what was chosen for later steps is lost.
async function choose(next) {
  const at = step;
  turns = [...turns.filter(([before]) => before < at), [at, next]];
  if (await run($("text").value)) show(at, next);
}

async function anew(text = $("text").value) {
  turns = [];
  resetBlock();
  if (await run(text)) show(0, warpOf(0));
}

const ACTIONS = {
  "first": () => show(0, warpOf(0)), "back": () => show(step - 1, warpOf(Math.max(0, step - 1))),
  "next": () => show(step + 1, warpOf(Math.min(launch.steps.length - 1, step + 1))),
  "line-back": () => nextLine(-1), "line-next": () => nextLine(1), "go": toKind,
};
const KEYS = { "Home": "first", "ArrowLeft": "back", "ArrowRight": "next", "Enter": "go" };
for (const [id, act] of Object.entries(ACTIONS)) $(id).onclick = () => launch && act();
document.onkeydown = (event) => {
  if (/^(INPUT|TEXTAREA|SELECT|BUTTON)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const id = event.shiftKey ? { ArrowLeft: "line-back", ArrowRight: "line-next" }[event.key] : KEYS[event.key];
  if (id && launch) { ACTIONS[id](); event.preventDefault(); }
};
$("time").oninput = () => show(+$("time").value, warpOf(+$("time").value));
$("warps").onclick = ({ target }) => {
  if (target.dataset.warp) show(step, +target.dataset.warp);
  if (target.dataset.turn) choose(+target.dataset.turn);
};
$("no-turns").onclick = () => anew();
$("order").onclick = (event) => {
  const at = Math.floor((event.offsetX / $("order").clientWidth) * launch.steps.length);
  show(at, warpOf(at));
};
$("register").onchange = () => show(step);
$("version").onchange = () => open($("version").value);
$("seq").onchange = $("schedule").onchange = () => anew();
$("all-lines").onclick = () => {
  const all = $("source").classList.toggle("all");
  $("all-lines").setAttribute("aria-pressed", all);
  $("all-lines").textContent = all ? "show this configuration only" : "show all lines";
};
$("tab-source").onclick = () => tab("source");
$("tab-ptx").onclick = () => tab("ptx");
$("run-ptx").onclick = () => anew();
$("restore").onclick = () => { $("text").value = original; anew(); };
$("to-ptx").onclick = () => {
  const line = $("text").value.slice(0, $("text").selectionStart).split("\n").length;
  if (launch) toPlace((at) => instructionOf(at).ptx_line === line);
};
$("here").onclick = () => launch && showPtxLine(launch.code[seen.warps[seen.shown].instruction].ptx_line);
$("compare").onclick = $("Q-block").onchange = $("KV-step").onchange = drawBlock;
$("kind").append(...Object.keys(KINDS).map((one) => new Option(one)));
$("version").append(...Object.entries(book.titles).map(([name, title]) => new Option(`${name} ${title}`, name)));

async function begin() {
  const wanted = new URLSearchParams(location.hash.slice(1) || location.search);
  for (const [id, name] of [["seq", "seq"], ["schedule", "order"]]) if (wanted.get(name)) $(id).value = wanted.get(name);
  if (!book.titles[wanted.get("v")]) wanted.set("v", "v02");
  if (wanted.get("v") === "v02" && wanted.size === 1) wanted.set("kind", "ldmatrix");
  await open(wanted.get("v"), wanted);
}
window.onhashchange = () => {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has("kind") || wanted.has("line") || (wanted.get("v") ?? version) !== version) begin();
};
unpack(book.wasm).then((wasm) => ask("compile", { wasm })).then(begin)
  .catch((error) => { $("where").textContent = error.message ?? error.text ?? String(error); });
