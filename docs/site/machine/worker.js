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

const commands = {
  async compile({ wasm }) { compiled = await WebAssembly.compile(wasm); },
  run({ program, problem }) {
    ptx = new TextEncoder().encode(program);
    return whole(problem);
  },
  look,
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
