// worker.js - owns the emulator. The page sends {id, name, args}; each message is answered once.
"use strict";
const NEVER = 0xffffffff, REASONS = ["stopped", "refused", "rounding"];
const decoder = new TextDecoder();
let compiled, x, kept, stack, ptx, scratch;

class Left extends Error {
  constructor(why) {
    super(`left: ${REASONS[why]}`);
    this.why = REASONS[why];
  }
}

const bytes = () => new Uint8Array(x.memory.buffer);

function text() {
  const at = x.emu_view_text();
  return JSON.parse(decoder.decode(bytes().subarray(at, bytes().indexOf(0, at))));
}

function copyIn(data) {
  const at = x.emu_view_memory(data.length + 1);
  bytes().set(data, at);
  bytes()[at + data.length] = 0;
  return at;
}

function refusal() {
  x.emu_view_refusal();
  return text();
}

// A module that was left by an error is dropped: every program begins in a new instance.
function load() {
  const env = { leave(why) { throw new Left(why); } };
  x = new WebAssembly.Instance(compiled, { env }).exports;
  x._initialize();
  x.emu_view_load(copyIn(ptx), ptx.length);
}

// Memory as it was before the launch is kept; a step is reached by putting it back and running up to there.
function prepare(problem) {
  load();
  if (x.page_problem(0, problem.seq, 0, 0, 0, 1, problem.schedule)) throw new Left(1);
  const turns = new Uint8Array(Uint32Array.from(problem.turns.flat()).buffer);
  x.emu_view_turns(copyIn(turns), problem.turns.length);
  scratch = x.emu_view_memory(1 << 18);
  kept = bytes().slice();
  stack = x.__stack_pointer.value;
}

function putBack() {
  bytes().set(kept);
  bytes().fill(0, kept.length);
  x.__stack_pointer.value = stack;
}

function whole(problem) {
  prepare(problem);
  const began = performance.now(), status = x.emu_view_run(NEVER), ms = performance.now() - began;
  const steps = new Uint32Array(x.memory.buffer, x.emu_view_steps(), x.emu_view_step_count()).slice();
  const found = { status, ms, steps, O: bytes().slice(x.page_tensor(3), x.page_tensor(3) + x.page_tensor_bytes(3)) };
  for (const name of ["findings", "counters", "code"]) {
    x[`emu_view_${name}`]();
    found[name] = text();
  }
  return found;
}

function lanes(at, bits) {
  if (!at) return null;
  if (bits > 32) return Array.from(new BigUint64Array(x.memory.buffer, at, 32), String);
  return Array.from(new Uint32Array(x.memory.buffer, at, 32));
}

// The machine before a step, with the operands of a warp (-1: of the one whose turn it is) and a register by name.
function look({ step, warp, register }) {
  const began = performance.now();
  putBack();
  try {
    x.emu_view_run(step);
    return { ended: true };
  } catch (error) {
    if (error.why !== "stopped") throw error;
  }
  x.emu_view_look(warp);
  const seen = text();
  for (const one of seen.operands) one.lanes = lanes(one.lanes, one.bits);
  if (x.emu_view_product(seen.shown, scratch)) {
    seen.product = text();
    const { columns } = seen.product, at = scratch + 4 * (128 + 2 * columns);
    seen.product.chunks = new Uint32Array(x.memory.buffer, scratch, 128 + 2 * columns).slice();
    seen.product.sums = new Uint32Array(x.memory.buffer, at, 16 * columns).slice();
  }
  const width = x.emu_view_addresses(seen.shown, scratch);
  if (width) seen.access = { width, addresses: lanes(scratch, 32) };
  const size = x.emu_view_shared_bytes();
  seen.shared = bytes().slice(x.emu_view_shared(), x.emu_view_shared() + size);
  seen.writers = x.emu_view_writers(scratch) ? new Uint32Array(x.memory.buffer, scratch, size >> 2).slice() : null;
  if (register) seen.register = lanes(x.emu_view_register(seen.shown, copyIn(new TextEncoder().encode(register))), 32);
  seen.ms = performance.now() - began;
  return seen;
}

// ---- S, m, l, P, O of a Q block against the reference --------------------------------------------------------------------

const half = (bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
};

// Rows of Q, K or V, as float64.
function rowsOf(tensor, d) {
  const words = new Uint16Array(x.memory.buffer, x.page_tensor(tensor), x.page_tensor_bytes(tensor) >> 1);
  return Array.from({ length: words.length / d }, (_, row) =>
    Float64Array.from(words.subarray(row * d, row * d + d), half));
}

// The arrays of a record, by name.
function recordOf(floats, [B_r, B_c, d, KV_blocks], Q_block, j) {
  const sizes = { S: B_r * B_c, m: B_r, P: B_r * B_c, l: B_r, O: B_r * d };
  let at = (Q_block * KV_blocks + j) * Object.values(sizes).reduce((all, one) => all + one);
  const record = {};
  for (const [name, size] of Object.entries(sizes)) record[name] = floats.slice(at, (at += size));
  return record;
}

// The KV blocks in the order of the kernel: after the first, m is the largest score of that block.
function orderOf(records, B_r, B_c) {
  const misses = ({ S, m }) => m.reduce((all, one, r) =>
    all + (Math.abs(one - Math.max(...S.subarray(r * B_c, r * B_c + B_c))) > 1e-5 * Math.abs(one)), 0);
  const ways = records.map((_, j) => j);
  return misses(records.at(-1)) < misses(records[0]) ? ways.reverse() : ways;
}

// What the arrays should be after some KV blocks, the last of which is at hand, computed in float64. P, l and O are
// relative to the m that the kernel has, which may be smaller than the largest score.
function reference(tensors, [B_r, B_c, d], Q_block, seen, m) {
  const [Q, K, V] = tensors, scale = 1 / Math.sqrt(d), last = seen.at(-1);
  const wanted = { S: new Float64Array(B_r * B_c), m: new Float64Array(B_r).fill(-Infinity),
    P: new Float64Array(B_r * B_c), l: new Float64Array(B_r), O: new Float64Array(B_r * d) };
  for (let r = 0; r < B_r; r++) {
    const q = Q[Q_block * B_r + r];
    for (const j of seen) {
      for (let c = 0; c < B_c; c++) {
        const k = K[j * B_c + c], v = V[j * B_c + c];
        let score = 0;
        for (let i = 0; i < d; i++) score += q[i] * k[i];
        const p = Math.exp(scale * (score - m[r]));
        wanted.m[r] = Math.max(wanted.m[r], score);
        wanted.l[r] += p;
        for (let i = 0; i < d; i++) wanted.O[r * d + i] += p * v[i];
        if (j === last) [wanted.S[r * B_c + c], wanted.P[r * B_c + c]] = [score, p];
      }
    }
  }
  return wanted;
}

// A launch of PTX that dumps; the launch that is stepped through stays.
function blocks({ program, problem, Q_block, step }) {
  const stays = { x, kept, stack, scratch, ptx };
  try {
    ptx = new TextEncoder().encode(program);
    load();
    x.page_dumps(1);
    if (x.page_problem(0, problem.seq, 0, 0, 0, 1, problem.schedule)) throw new Left(1);
    x.emu_view_run(NEVER);
    const at = x.emu_view_memory(20), from = x.page_dump(at);
    const shape = [...new Uint32Array(x.memory.buffer, at, 5)], [B_r, B_c, d, KV_blocks, Q_blocks] = shape;
    const size = 2 * B_r * B_c + 2 * B_r + B_r * d;
    const floats = new Float32Array(x.memory.buffer, from, Q_blocks * KV_blocks * size);
    const records = Array.from({ length: KV_blocks }, (_, j) => recordOf(floats, shape, Q_block, j));
    const order = orderOf(records, B_r, B_c), seen = order.slice(0, step + 1), got = records[seen.at(-1)];
    const tensors = [0, 1, 2].map((one) => rowsOf(one, d));
    return { shape, order, got, wanted: reference(tensors, shape, Q_block, seen, got.m) };
  } finally {
    ({ x, kept, stack, scratch, ptx } = stays);
  }
}

const commands = {
  async compile({ wasm }) { compiled = await WebAssembly.compile(wasm); },
  run({ program, problem }) {
    ptx = new TextEncoder().encode(program);
    return whole(problem);
  },
  look,
  blocks,
};

onmessage = async ({ data: { id, name, args } }) => {
  try {
    postMessage({ id, result: await commands[name](args) });
  } catch (error) {
    const said = error.why === "refused" ? refusal() : { line: 0, text: error.why === "rounding"
      ? "this page rounds to nearest only: an instruction that ran has .rz, .rm or .rp" : String(error.message || error) };
    postMessage({ id, error: said });
  }
};
