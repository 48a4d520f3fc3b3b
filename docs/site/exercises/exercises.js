// exercises.js - exercises that the machine grades. The tasks are those of tasks.json; a task's `kind` says how it is
// answered: number, line, choice or position. The emulator runs in the worker of the page of the machine.
"use strict";
const $ = (id) => document.getElementById(id);
const tasks = window.tasks;
const STORE = "flashladder.exercises"; // {id: "solved" or "shown"}, in this browser only
const INSTRUCTION = (1 << 20) - 1; // of a step: the instruction's number

// ---- progress --------------------------------------------------------------------------------------------------------

let held = {}; // where the browser keeps nothing, for as long as the page is open
function progress() {
  try { held = JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { /* no storage */ }
  return held;
}
function note(id, state) {
  held = { ...progress() };
  if (state === "shown" && held[id]) return;
  held[id] = state;
  try { localStorage.setItem(STORE, JSON.stringify(held)); } catch { /* no storage */ }
}

// ---- the machine -----------------------------------------------------------------------------------------------------

const scripts = new Map();
function script(name) {
  const [, version] = name.match(/^data\/(\w+)\.js$/) ?? [], book = window.flashladder;
  if (version ? book.versions[version] : book) return Promise.resolve(); // in the page itself
  if (!scripts.has(name)) {
    scripts.set(name, new Promise((done, failed) => {
      const made = document.createElement("script");
      made.src = `../machine/${name}`;
      made.onload = done;
      made.onerror = () => failed(new Error(`machine/${name} does not load`));
      document.head.append(made);
    }));
  }
  return scripts.get(name);
}
const unpack = async (base64) => {
  const packed = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  return new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
};
let machine = null;
const waiting = new Map();
function ask(name, args) {
  return new Promise((done, failed) => {
    waiting.set(waiting.size + 1, [done, failed]);
    machine.postMessage({ id: waiting.size, name, args });
  });
}
async function start() {
  await script("emulator.js");
  if (machine) return;
  machine = new Worker(URL.createObjectURL(new Blob([window.flashladder.worker], { type: "text/javascript" })));
  machine.onmessage = ({ data }) => { const [done, failed] = waiting.get(data.id); data.error ? failed(data.error) : done(data.result); };
  await ask("compile", { wasm: await unpack(window.flashladder.wasm) });
}
async function held_of(version) {
  await start();
  await script(`data/${version}.js`);
  return window.flashladder.versions[version];
}
// The entry's symbol names the configuration, and the pages show a short name instead.
async function ptxOf(version) {
  const { ptx, entry, symbol } = await held_of(version), text = new TextDecoder().decode(await unpack(ptx));
  return text.replaceAll(new RegExp(`(?<![\\w$])${entry}(?![\\w$])`, "g"), () => symbol);
}

// What a program gives: {launch}, or {refused} where the emulator does not accept it.
async function run(program, seq, schedule = 0) {
  try { return { launch: await ask("run", { program, problem: { seq, schedule, turns: [] } }) }; } catch (refused) {
    return { refused: refused.line ? `PTX line ${refused.line}: ${refused.text}` : refused.text ?? String(refused) };
  }
}
const MEASURES = {
  executed: ({ counters }) => counters.executed,
  wavefronts: ({ counters }) => counters.wavefronts,
  steps: ({ steps, code }, opcode) => steps.reduce((sum, one) => sum + code[one & INSTRUCTION].ptx.replace(/^@!?%\w+ /, "").startsWith(opcode), 0),
};
async function measured(task, version) {
  const { launch, refused } = await run(await ptxOf(version), task.seq);
  if (refused) throw new Error(refused);
  return MEASURES[task.measure](launch, task.opcode);
}

// ---- kinds -----------------------------------------------------------------------------------------------------------

function element(name, properties = {}) { return Object.assign(document.createElement(name), properties); }
function verdict(text, good) {
  $("verdict").textContent = text;
  $("verdict").className = good === undefined ? "" : good ? "good" : "bad";
}
function solved(text) {
  note(current.id, "solved");
  verdict(`Right. ${text}`, true);
  drawList();
}
async function busy(work) {
  const mine = current;
  verdict("The machine runs …");
  try { await work(); } catch (error) { if (mine === current) verdict(error.message ?? error.text ?? String(error), false); }
}

const KINDS = {
  number: {
    about: "Predict a number; the machine then counts.",
    draw(task) {
      const form = element("form"), field = element("input", { id: "number", inputMode: "numeric", autocomplete: "off", size: 10 });
      form.append(element("label", { textContent: `${task.asks}: ` }), field, " ", element("button", { textContent: "Check" }));
      form.firstChild.htmlFor = "number";
      form.onsubmit = (event) => {
        event.preventDefault();
        if (!/^\d+$/.test(field.value.trim())) return verdict("Write a whole number.", false);
        busy(async () => {
          const found = await measured(task, task.version), given = +field.value;
          if (given === found) solved(`${found}. ${task.why}`);
          else verdict(`${given} is too ${given > found ? "high" : "low"}.`, false);
        });
      };
      $("answer").append(form);
    },
    reveal: async (task) => `The machine counts ${await measured(task, task.version)}. ${task.why}`,
  },
  choice: {
    about: "Choose; the machine then runs all of them.",
    draw(task) {
      const box = element("div", { className: "choices" });
      box.append(...task.options.map((one) => {
        const button = element("button", { textContent: `${one}: ${task.titles[one]}` });
        button.dataset.option = one;
        button.onclick = () => busy(async () => {
          const [best, said] = await compared(task);
          if (one === best) solved(`${said} ${task.why}`); else verdict(`Not ${one}.`, false);
        });
        return button;
      }));
      $("answer").append(box);
    },
    reveal: async (task) => { const [best, said] = await compared(task); return `${best}. ${said} ${task.why}`; },
  },
  line: {
    about: "Click the line that is wrong.",
    draw(task) {
      $("answer").append(lines(task.shown.map((text, i) => {
        const button = element("button", { textContent: text || " " });
        button.onclick = () => (i === task.wrong ? solved(task.why) : verdict("That line is right.", false));
        return button;
      })));
    },
    reveal: async (task) => `${task.shown[task.wrong].trim()}\n${task.why}`,
  },
  position: {
    about: "Choose where the instruction belongs; the machine runs it there.",
    draw(task) {
      busy(async () => {
        const mine = current, program = await broken(task);
        if (mine !== current) return;
        verdict("");
        $("text").append(element("p", { textContent: `To be placed: ${program.cut.trim()}` }));
        $("answer").append(lines(program.rows.flatMap(({ text, at }) => {
          const gap = element("button", { className: "gap", textContent: "+ here" });
          gap.ariaLabel = `put it before: ${text.trim()}`;
          gap.dataset.at = at;
          gap.onclick = () => busy(async () => {
            const said = await placed(task, program, at);
            if (mine !== current) return;
            if (said) verdict(said, false); else solved(task.why);
          });
          return [gap, element("code", { textContent: text })];
        })));
      });
    },
    reveal: async (task) => { const program = await broken(task); return `Before: ${program.after.trim()}\n${task.why}`; },
  },
};

function lines(children) {
  const box = element("div", { className: "lines" });
  box.append(...children);
  box.onkeydown = (event) => { // up and down lead from one button to the next
    const buttons = [...box.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    const other = { ArrowDown: buttons[at + 1], ArrowUp: buttons[at - 1] }[event.key];
    if (other) { other.focus(); event.preventDefault(); }
  };
  return box;
}

async function compared(task) {
  const counts = [];
  for (const version of task.options) counts.push([version, await measured(task, version)]);
  const best = counts.reduce((a, b) => (b[1] < a[1] ? b : a))[0];
  return [best, `${counts.map(([name, count]) => `${name} ${count}`).join(", ")}.`];
}

// The program without an instruction: the n-th line that holds `cut`, and the rows around it that can be shown.
async function broken(task) {
  const all = (await ptxOf(task.version)).split("\n");
  let left = task.nth ?? 1;
  const at = all.findIndex((text) => text.includes(task.cut) && --left === 0);
  if (at < 0) throw new Error(`${task.version} has no ${task.cut}`);
  const [cut] = all.splice(at, 1);
  const rows = all.map((text, i) => ({ text: text.replaceAll("\t", " "), at: i }))
    .filter(({ text }) => text.trim() && !/^\s*\.loc|^\s*\/\//.test(text));
  const middle = rows.findIndex((row) => row.at >= at);
  const shown = rows.slice(Math.max(0, middle - task.before), middle + task.after);
  return { all, cut, after: rows[middle].text, rows: shown };
}

// "" where the program with the instruction at that position does what it did; else what the machine says.
async function placed(task, program, at) {
  const whole = await ptxOf(task.version), text = [...program.all];
  text.splice(at, 0, program.cut);
  for (const schedule of [0, 7]) {
    const wanted = await run(whole, task.seq, schedule), { launch, refused } = await run(text.join("\n"), task.seq, schedule);
    if (refused) return `Refused. ${refused}`;
    if (launch.findings.length) return `Not there. ${launch.findings[0].message}`;
    if (launch.status !== 0) return "Not there: the launch could not continue.";
    if (launch.O.some((byte, i) => byte !== wanted.launch.O[i])) return "Not there: the output is another one.";
    if (launch.counters.executed > 1.05 * wanted.launch.counters.executed) return "Right results, but it runs more often than it must.";
  }
  return "";
}

// ---- the page --------------------------------------------------------------------------------------------------------

let current = tasks[0];
function drawList() {
  const states = progress(), done = tasks.filter((one) => states[one.id] === "solved").length;
  $("progress").textContent = `${done} of ${tasks.length} solved`;
  $("list").replaceChildren(...tasks.map((one) => {
    const item = element("li"), state = states[one.id];
    const button = element("button", { textContent: `${state === "solved" ? "✓ " : state ? "· " : ""}${one.title}` });
    button.ariaLabel = `${one.title}${state ? `, ${state}` : ""}`;
    button.setAttribute("aria-current", one === current);
    button.onclick = () => open(one);
    item.append(button);
    return item;
  }));
}

function open(task, focus = true) {
  current = task;
  try { history.replaceState(null, "", `#${task.id}`); } catch { /* a frame without an address */ }
  $("title").textContent = task.title;
  $("about").textContent = `${task.chapter}. ${KINDS[task.kind].about}`;
  $("text").replaceChildren(element("p", { textContent: task.text }));
  $("answer").replaceChildren();
  const version = task.version ?? task.options[0];
  $("machine").href = `../machine/index.html?v=${version}`;
  if (window.parent !== window) $("machine").onclick = () => { parent.location.hash = `v=${version}`; return false; };
  verdict("");
  drawList();
  KINDS[task.kind].draw(task);
  document.body.dataset.task = task.id;
  if (focus) $("task").focus();
}

$("reveal").onclick = () => busy(async () => {
  const mine = current, text = await KINDS[mine.kind].reveal(mine);
  note(mine.id, "shown");
  if (mine === current) { verdict(text); drawList(); }
});
$("following").onclick = () => open(tasks[(tasks.indexOf(current) + 1) % tasks.length]);
$("forget").onclick = () => {
  held = {};
  try { localStorage.removeItem(STORE); } catch { /* no storage */ }
  drawList();
};
window.onhashchange = () => { const wanted = tasks.find((one) => `#${one.id}` === location.hash); if (wanted && wanted !== current) open(wanted); };
open(tasks.find((one) => `#${one.id}` === location.hash) ?? tasks[0], false);
