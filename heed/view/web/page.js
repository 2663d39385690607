// The page: what is asked, what has been answered, and all views of it. The same code runs at `/`
// of a server and, with the sentences inside, as one file.

import { $, offer, still } from "./dom.js";
import { address, choose, hovered, on_change, read_address, redraw, state } from "./state.js";
import { reading_of } from "./reading.js";
import { ask_languages, ask_models, ask_settings, ask_translation, set_key } from "./live.js";
import { draw_panel, make_panel } from "./panel.js";
import { draw_heads } from "./heads.js";
import { draw_steps, stop_playing } from "./steps.js";
import { colors, forget_colors } from "./palette.js";
import { draw_tree } from "./tree.js";
import { draw_why } from "./why.js";
import { draw_legend, set_up_take } from "./take.js";

const file = JSON.parse($("data").textContent); // null: there is a server
const live = file === null;
const quiet_after = 25; // ms without a key before the server is asked

// By what was asked: { sentences } or, on its way, { partial }: of each sentence text and tree so far.
const answers = new Map();
const panels = [make_panel(0), make_panel(1)];
let pairs = [], theme = 0, was_tall = false;

const world = {
  live, models: [], shifts: !live && file.start?.shift !== undefined && file.start.shift !== null,
  // What the model said before somebody led it.
  base: (number) => answered({ ...question(number), prefix: undefined, forced: undefined, text: state.text })?.[state.sentence] ?? null,
  reading: (number = 0) => reading_at(number),
  width: (panel) => (state.compare ? panel : $("views")).clientWidth, // that a line of words may have
  ask_why: (reading) => ask_why(reading),
  // Of a file: the readings of the sentence, such as those of two models, and which of them a side shows.
  same: (number) => file_readings().flatMap((r, i) => (r.source.text === reading_at(number).source.text ? [[i, [r.model, r.target.text].filter(Boolean).join(": ")]] : [])),
  place: (number) => file_readings().indexOf(reading_at(number)),
  data: () => (live ? data_now() : file),
};

// ---- asking

const pair_now = () => pairs.find((p) => p.name === state.pair) ?? pairs[0];

// What POST /v1/translate is asked for a side; the whole text, or the sentence that is led.
function question(number) {
  const side = state.sides[number], pair = pair_now();
  const out = { text: state.text, source: pair?.source, target: pair?.target, beam: state.beam, best: Math.min(state.beam, 5), weights: "all", tree: true, candidates: true };
  if (pair?.models[side.model] !== undefined && pair.models.length > 1) out.model = pair.models[side.model];
  const kind = pair?.kinds[side.model];
  if (kind && !kind.attention) delete out.weights;
  if (kind?.self_attention) out.self_attention = true;
  if (side.prefix || side.forced) {
    const whole = answered({ ...out });
    out.text = whole?.[state.sentence]?.source.text ?? state.text;
    if (side.prefix) out.prefix = side.prefix;
    else (out.forced = side.forced), delete out.best;
  }
  return out;
}

const key_of = (q) => JSON.stringify(q, Object.keys(q).sort());
const answered = (q) => answers.get(key_of(q))?.sentences ?? null;

// Asks what is not known yet, and gives up what is wanted no longer. What was not answered is not
// asked again before something is typed.
const under_way = [null, null], refused = new Set();
async function ask(number) {
  const text = state.text.trim();
  if (!live || !text || !pair_now()) return;
  const side = state.sides[number];
  if (side.prefix || side.forced) await fetch_once(number, { ...question(number), prefix: undefined, forced: undefined, text: state.text });
  await fetch_once(number, question(number));
}

async function fetch_once(number, q) {
  const key = key_of(q);
  if (answers.get(key)?.sentences || under_way[number]?.key === key || refused.has(key)) return;
  under_way[number]?.stop.abort();
  const stop = new AbortController();
  under_way[number] = { key, stop };
  const entry = { partial: [] };
  answers.set(key, entry);
  if (answers.size > 60) answers.delete(answers.keys().next().value);
  try {
    const answer = await ask_translation(q, { signal: stop.signal, partial: (event) => (grow(entry.partial, event), redraw()) });
    const { text, sentences } = answer.translations[0];
    entry.sentences = sentences.map(reading_of);
    entry.raw = answer;
    $("said").textContent = answer.pivot ? `by ${answer.pivot.language}: ${answer.pivot.text}` : sentences[0] ? "" : text;
  } catch (error) {
    answers.delete(key);
    if (error.name !== "AbortError") refused.add(key), ($("said").textContent = error.message);
  } finally {
    if (under_way[number]?.key === key) under_way[number] = null;
    redraw();
  }
}

// A tree grows by what a step kept, likeliest first; the way to the likeliest that goes on is the
// winner so far.
function grow(partial, { sentence, text, tree: kept = [] }) {
  const tree = partial[sentence]?.tree ?? [], lead = tree.length + kept.findIndex((n) => !n.finished);
  tree.push(...kept);
  if (lead < tree.length && kept.length > 0) {
    for (const node of tree) node.best = false;
    for (let i = lead; i >= 0; i = tree[i].parent) tree[i].best = true;
  }
  partial[sentence] = { text, tree };
}

// What is compared and read: asked for only when it is looked at.
let why_asked = null;
async function ask_why(reading) {
  const q = question(0);
  if (why_asked === reading || !q.weights) return;
  why_asked = reading;
  try {
    for (const name of ["tree", "candidates", "best", "self_attention"]) delete q[name];
    const answer = await ask_translation({ ...q, text: reading.source.text, weights: "chosen", why: true }, {});
    reading.why = answer.translations[0].sentences[0]?.why ?? { layers: [] };
  } catch (error) {
    $("said").textContent = error.message;
  }
  redraw();
}

// What a side shows: the answer; until it is there, the words so far; until there are any, what was
// there before.
const before = [null, null];
function reading_at(number) {
  if (!live) return file_reading(number);
  const known = answers.get(key_of(question(number)));
  const at = known?.sentences?.[Math.min(state.sentence, known.sentences.length - 1)];
  if (at || known?.sentences) return (before[number] = at); // there may be nothing to translate
  const words = (text) => text.split(/\s+/).filter(Boolean);
  const so_far = known?.partial[state.sentence] ?? known?.partial[0] ?? { text: "", tree: [] };
  const source = words(question(number).text ?? ""), target = words(so_far.text);
  if (state.text.trim() === "") return (before[number] = null);
  if (!known) return before[number];
  if (target.length === 0 && before[number]) return before[number];
  return reading_of({ source: { pieces: source }, target: { pieces: target }, tree: so_far.tree, ends: before[number]?.ends ?? true, waiting: true });
}

let from_file = null;
const file_readings = () => (from_file ??= file.sentences.map(reading_of));
function file_reading(number) {
  const all = file_readings(), first = all[Math.min(state.sentence, all.length - 1)], other = all[state.sides[number].reading];
  return other && other.source.text === first.source.text ? other : first;
}

// A file of the present sentences, which begins as the page looks now.
function data_now() {
  const shown = [0, 1].slice(0, state.compare ? 2 : 1).map((i) => answers.get(key_of(question(i)))).filter((a) => a?.sentences);
  const name = (i) => (state.compare && world.models.length > 1 ? { model: world.models[state.sides[i].model] } : {});
  const sentences = shown.map((a, i) => a.raw.translations[0].sentences.map((s, n) => ({ ...s, ...name(i), why: a.sentences[n].why ?? undefined })));
  const at = sentences.map((of) => Math.min(state.sentence, of.length - 1)), begins = new URLSearchParams(address().slice(1));
  begins.set("sentence", at[0] ?? 0);
  if (sentences.length > 1) begins.set("reading2", sentences[0].length + at[1]);
  return { start: { words: 1, address: `#${begins}` }, sentences: sentences.flat() };
}

// ---- drawing

function draw() {
  document.documentElement.classList.toggle("still", still());
  $("compare").checked = state.compare > 0;
  for (const [id, on] of [["words", state.words], ["ends", state.ends], ["scale", state.scale], ["numbers", state.numbers]]) $(id).checked = on;
  if ($("gold").value !== state.gold) $("gold").value = state.gold;
  $("views").classList.toggle("two", state.compare > 0);
  $("views").classList.toggle("over", state.sides[0].overlay !== ""); // the legend names heads
  const readings = [0, 1].slice(0, state.compare ? 2 : 1).map(reading_at);
  const sentences = live ? answers.get(key_of({ ...question(0), prefix: undefined, forced: undefined, text: state.text }))?.sentences ?? [] : file_readings();
  offer($("sentence"), sentences.map((s, i) => [i, `${s.number ?? i + 1}. ${s.source.text.slice(0, 60)}`]), state.sentence);
  $("views").hidden = !readings[0];
  panels.forEach((panel, i) => (panel.hidden = !readings[i]));
  if (!readings[0]) return;
  const matrices = readings.map((reading, i) => reading && draw_panel(panels[i], reading, i, world));
  const tall = !state.compare && panels[0].querySelector(".figure > .down:not([hidden])") !== null;
  if ($("views").classList.toggle("tall", tall) !== was_tall) (was_tall = tall), redraw(); // in its new place
  const settled = !readings[0].waiting;
  document.body.classList.toggle("waiting", !settled);
  draw_next(() => {
    $("legend").hidden = settled && !matrices.some((m) => m?.weights);
    if (settled) draw_heads(readings[0], theme);
    draw_legend(readings[0]);
    draw_tree(readings[0], live);
    draw_steps(readings[0], matrices[0], live);
    if (settled) draw_why(readings[0], matrices[0], world);
  });
}

// What stands around the two lines is drawn between frames, so that ribbons that move are in time.
const between_frames = window.requestIdleCallback ?? ((job) => setTimeout(job));
let next = null;
function draw_next(views) {
  if (!next)
    between_frames(() => {
      const now = next;
      next = null;
      now();
    }, { timeout: 50 });
  next = views;
}

function changed() {
  if (live) for (const number of state.compare ? [0, 1] : [0]) ask(number); // first: drawing takes time, too
  draw();
}

// ---- setting up

function set_up_choices() {
  for (const id of ["words", "ends", "scale", "numbers"]) $(id).addEventListener("change", (e) => choose({ [id]: +e.target.checked, row: -1, column: -1 }));
  $("compare").addEventListener("change", (e) => {
    if (e.target.checked) Object.assign(state.sides[1], state.sides[0]);
    choose({ compare: +e.target.checked });
  });
  $("sentence").addEventListener("change", (e) => choose({ sentence: Number(e.target.value), row: -1, column: -1, step: -1 }));
  $("gold").addEventListener("input", (e) => choose({ gold: e.target.value }));
  document.addEventListener("keydown", (e) => e.key === "Escape" && choose({ row: -1, column: -1, step: -1 }));
}

async function set_up_server() {
  $("ask").hidden = false;
  const [models, languages, settings] = await Promise.all([ask_models(), ask_languages(), ask_settings()]);
  const name = (code) => languages.find((l) => l.code === code)?.name ?? code;
  models.forEach((m, i) => {
    const key = `${m.source}-${m.target}`;
    let pair = pairs.find((p) => p.name === key);
    if (!pair) pairs.push((pair = { name: key, title: `${name(m.source)} → ${name(m.target)}`, source: m.source, target: m.target, models: [], names: [], kinds: [] }));
    pair.models.push(i);
    pair.names.push(`${pair.models.length}: ${m.family ?? "model"}, ${m.score === "none" ? "without attention" : m.score ?? ""}`);
    pair.kinds.push({ attention: m.score !== "none", self_attention: m.family === "transformer" && m.score !== "none" });
  });
  if (!pairs.some((p) => p.name === state.pair)) state.pair = pairs[0]?.name ?? "";
  offer($("pair"), pairs.map((p) => [p.name, p.title]), state.pair);
  if (pairs.length < 2) $("pair-name").textContent = pair_now()?.title ?? "";
  $("pair").addEventListener("change", (e) => (state.sides.forEach((s) => Object.assign(s, { model: 0, prefix: "", forced: "" })), choose({ pair: e.target.value, sentence: 0, row: -1, column: -1, step: -1 })));
  on_change(() => (world.models = pair_now()?.names ?? []));
  world.models = pair_now()?.names ?? [];
  $("key").parentElement.hidden = !settings.keyRequired && !settings.apiKeys;
  $("key").addEventListener("change", (e) => (refused.clear(), set_key(e.target.value), redraw()));
  const text = $("text");
  if (!state.text) state.text = text.placeholder;
  text.value = state.text;
  let timer = 0;
  text.addEventListener("input", () => {
    clearTimeout(timer);
    stop_playing();
    timer = setTimeout(() => {
      refused.clear();
      state.sides.forEach((s) => Object.assign(s, { prefix: "", forced: "" }));
      choose({ text: text.value, sentence: 0, row: -1, column: -1, step: -1 });
    }, quiet_after);
  });
  offer($("beam"), [1, 2, 3, 5, 8].map((b) => [b, b === 1 ? "1, greedy" : `${b}`]), state.beam);
  $("beam").addEventListener("change", (e) => choose({ beam: Number(e.target.value) }));
}

function start() {
  const begin = live ? {} : {
    shared: { words: +(file.start?.words ?? 0), scale: +(file.start?.scale_rows ?? 0), ends: +!(file.start?.hide_ends ?? false) },
    side: { layer: file.start?.layer ?? -1, head: file.start?.head ?? -1, shift: file.start?.shift ?? 0 },
  };
  if (file?.start?.address && !location.hash) history.replaceState(null, "", file.start.address);
  read_address(begin);
  $("panels").append(...panels);
  on_change(changed);
  set_up_choices();
  set_up_take(world, panels);
  addEventListener("hashchange", () => {
    read_address(begin);
    if (live) $("text").value = state.text ||= $("text").placeholder;
    redraw();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (width !== document.body.clientWidth) (width = document.body.clientWidth), redraw();
  }).observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (forget_colors(), ++theme, redraw()));
  addEventListener("pointerdown", (e) => e.target.closest("button, .token, .map, canvas") || Object.assign(hovered, { row: -1, column: -1 }));
  colors();
  if (live) set_up_server().then(redraw, (error) => ($("said").textContent = error.message));
  else redraw();
}

start();
