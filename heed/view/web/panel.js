// One side of the page: whose weights are shown, the figure, the map, and what they say in numbers.

import { decimals, element, exact, offer, word } from "./dom.js";
import { choose, looked_at, pin, state } from "./state.js";
import { kind_names, layers_of, links_of, matrix_of, rows_of, shown_head, token_of } from "./reading.js";
import { draw_ribbons, make_ribbons } from "./ribbons.js";
import { draw_arcs, make_arcs } from "./arcs.js";
import { reveal } from "./lines.js";
import { draw_map, make_map, reveal_cell } from "./heatmap.js";
import { step_of } from "./steps.js";

const select = (name, title) => element("label", { data: { choice: name } }, [title, " ", element("select", { name })]);

export function make_panel(number) {
  const parts = {
    choices: element("div", { className: "choices" }, [
      select("model", "Model"), select("translation", "Translation"), select("kind", "Attention"), select("layer", "Layer"), select("head", "Head"), select("shift", "Step"),
    ]),
    ribbons: make_ribbons(), arcs: make_arcs(),
    said: element("output", { className: "said" }), map: make_map(),
  };
  parts.said.setAttribute("aria-live", "polite");
  const own = element("form", { className: "own", hidden: true }, [
    element("label", {}, ["Its translation ", element("input", { name: "own", dir: "auto", autocomplete: "off" })]), element("button", {}, ["Read it"]),
  ]);
  const panel = element("article", { className: "panel", aria: { label: number ? "Second reading" : "Reading" } }, [
    parts.choices, own, element("div", { className: "figure" }, [parts.ribbons, parts.arcs]), parts.said, parts.map,
  ]);
  panel.parts = { ...parts, own };
  const at = (name) => parts.choices.querySelector(`[name=${name}]`);
  const numeric = (value) => (/^-?\d+$/.test(value) ? Number(value) : value);
  at("model").addEventListener("change", (e) => choose({ model: numeric(e.target.value), layer: -1, head: -1, overlay: "", kind: "cross" }, number));
  at("kind").addEventListener("change", (e) => choose({ kind: e.target.value, layer: -1, head: -1, overlay: "" }, number) ?? pin(-1, -1));
  at("layer").addEventListener("change", (e) => {
    const head = state.sides[number].head;
    choose({ layer: numeric(e.target.value), head: Number(e.target.value) < 0 ? -1 : head === -1 ? "mean" : head, overlay: "" }, number);
  });
  at("head").addEventListener("change", (e) => choose({ head: numeric(e.target.value), overlay: "" }, number));
  at("shift").addEventListener("change", (e) => choose({ shift: numeric(e.target.value) }, number));
  at("translation").addEventListener("change", (e) => {
    own.hidden = e.target.value !== "own";
    if (e.target.value.startsWith("r")) choose({ reading: Number(e.target.value.slice(1)) }, number);
    else if (own.hidden) choose({ prefix: "", forced: e.target.value === "0" ? "" : e.target.selectedOptions[0].dataset.text }, number);
    else own.querySelector("input").focus();
  });
  own.addEventListener("submit", (e) => {
    e.preventDefault();
    const text = own.querySelector("input").value.trim();
    if (text) choose({ prefix: "", forced: text }, number), (own.hidden = true);
  });
  return panel;
}

function draw_choices(panel, reading, number, world) {
  const side = state.sides[number], at = (name) => panel.parts.choices.querySelector(`[name=${name}]`);
  const layers = layers_of(reading, side), { layer, head } = shown_head(reading, side), over = overlaid(reading, side).length > 0;
  offer(at("model"), world.models.map((m, i) => [i, m]), side.model);
  const texts = [...new Set([...(world.base(number)?.best ?? []).map((b) => b.text), ...(side.forced ? [side.forced] : [])])];
  const offered = !world.live ? world.same(number).map(([i, text]) => [`r${i}`, text]) : [["0", side.prefix ? "led by you" : "the best found"], ...texts.slice(side.forced ? 0 : 1).map((t, i) => [`f${i}`, t]), ["own", "another …"]];
  offer(at("translation"), offered, !world.live ? `r${world.place(number)}` : side.forced ? `f${texts.indexOf(side.forced)}` : "0");
  [...at("translation").options].forEach((o) => (o.dataset.text = o.text));
  const kinds = Object.entries(reading.kinds).filter(([, all]) => all.length > 0).map(([kind]) => [kind, reading.past ? "text reads its past" : kind_names[kind]]);
  offer(at("kind"), kinds, side.kind);
  const aligning = side.kind === "cross" && reading.chosen && (layers.length > 1 || (layers[0]?.heads.length ?? 0) > 1) ? [[-1, "the one that aligns"]] : [];
  offer(at("layer"), layers.length > 1 || aligning.length ? [...aligning, ...layers.map((l, i) => [i, l.name || `${i + 1}`]), ...(over ? [["over", "laid over"]] : [])] : [], over ? "over" : layer);
  const heads = over ? 0 : layers[layer]?.heads.length ?? 0;
  offer(at("head"), heads > 1 ? [["mean", "mean of all"], ["max", "largest of all"], ...Array.from({ length: heads }, (_, h) => [h, `${h + 1}`])] : [], head);
  offer(at("shift"), world.shifts && side.kind === "cross" && (layer >= 0 || over) ? [[0, "that writes the word"], [1, "after it, which reads it"]] : [], side.shift);
}

// Heads that are laid over each other: "0.1 0.3" are of layer 0.
export function overlaid(reading, side) {
  const layers = layers_of(reading, side);
  return side.overlay.split(" ").filter(Boolean).map((name) => name.split(".").map(Number))
    .filter(([l, h]) => layers[l]?.heads[h]).map(([layer, head]) => ({ layer, head }));
}

// What was made of a reading, as long as that is there; and a number for each reading.
const made = new WeakMap();
function cached(reading, key, make) {
  if (!made.has(reading)) made.set(reading, { number: ++readings, values: new Map() });
  const { values } = made.get(reading);
  if (!values.has(key)) values.set(key, make());
  return values.get(key);
}
let readings = 0;
const number_of = (reading) => made.get(reading).number;

// Of several matrices of the same words: what the map shows of heads that are laid over each other.
function mean_of(matrices, { scale }) {
  if (matrices.length < 2) return matrices[0];
  const weights = matrices[0].weights.map((row, i) => row.map((_, j) => matrices.reduce((sum, m) => sum + m.weights[i][j], 0) / matrices.length));
  return { ...matrices[0], weights, whole: weights.map((row) => (scale ? Math.max(1e-9, ...row) : 1)) };
}

export const options_now = () => ({ words: state.words, ends: state.ends, scale: state.scale });

export function draw_panel(panel, reading, number, world) {
  const side = state.sides[number], { ribbons, arcs, said, map } = panel.parts;
  draw_choices(panel, reading, number, world);
  const options = options_now(), heads = overlaid(reading, side);
  const key = JSON.stringify([side.kind, side.layer, side.head, side.shift, side.overlay, options]);
  const { matrix, matrices } = cached(reading, key, () => {
    const matrices = (heads.length > 0 ? heads : [undefined]).map((h) => matrix_of(reading, side, options, h));
    return { matrix: mean_of(matrices, options), matrices };
  });
  const look = looked_at();
  const kind = side.kind;
  const seen = { row: look.row < matrix.rows.length ? look.row : -1, column: look.column < matrix.columns.length ? look.column : -1 };
  const step = state.step >= 0 && number === 0 && kind !== "encoder" ? token_of(matrix.rows_of, step_of(reading, matrix)) : -1;
  if (step >= 0 && seen.row < 0 && seen.column < 0) seen.row = step;
  const dim = step >= 0 ? step : Infinity;
  const led = (side.prefix || "").split(/\s+/).filter(Boolean).length;
  const forced = matrix.rows_of.findIndex((of) => (reading.target.word[of[0]] ?? Infinity) >= led);
  const names = { rows: kind === "encoder" ? "Source words" : "Target words", columns: kind === "decoder" ? "Target words" : "Source words" };
  ribbons.hidden = kind !== "cross" || reading.past;
  arcs.hidden = !ribbons.hidden;
  panel.querySelector(".figure").hidden = false;
  if (kind === "cross" && !reading.past)
    draw_ribbons(ribbons, { width: world.width(panel), matrices, key: `${number_of(reading)} ${key}`, look: seen, dim, forced: led ? forced : -1, names, waiting: reading.waiting });
  else draw_arcs(arcs, { width: world.width(panel), matrices, look: seen, dim, names, past: kind === "decoder" || reading.past });
  const chosen = `${number_of(reading)} ${step} ${state.row} ${state.column}`, comes = panel.chosen !== chosen && !reading.waiting;
  if (comes) {
    const figure = arcs.hidden ? ribbons : arcs, line = arcs.hidden ? (seen.row >= 0 ? ".target" : ".source") : ".line";
    if (figure.classList.contains("down")) reveal(figure, figure.querySelector(line).children[seen.row >= 0 ? seen.row : seen.column]);
    panel.chosen = chosen;
  }
  const gold = links_of(state.gold || reading.gold?.text || "", matrix, reading);
  const predicted = reading.gold?.predicted ? links_of(reading.gold.predicted, matrix, reading).map((l) => ({ ...l, predicted: true })) : [];
  const name = `Weights, ${reading.past ? "text reads its past" : kind_names[kind]}`;
  draw_map(map, { matrix, look: seen, links: kind === "cross" ? [...gold, ...predicted] : [], numbers: state.numbers, dim, name, waiting: reading.waiting });
  if (comes) reveal_cell(map, matrix, seen);
  say(said, reading, matrix, { look: seen, past: kind === "decoder", nothing: rows_of(reading, side) ? null : "This model has no attention: there are no weights." });
  panel.matrix = matrix;
  return matrix;
}

function say(said, reading, matrix, { look, past, nothing }) {
  const { row, column } = look, w = matrix.weights;
  const list = (labels, weight) => labels.map((l, i) => [l, weight(i)]).sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1)).slice(0, 4).filter(([, x], i) => i === 0 || x === null || x >= 0.001)
    .flatMap(([l, x], i) => [i ? ", " : "", element("b", {}, [word(l)]), `\u00a0${exact(x)}`]);
  // A word that reads its past stands where the one before it is, which the model has just read.
  const after = past && row >= 0 ? [", after ", element("b", {}, [word(matrix.columns[row])]), ","] : [];
  let parts = [];
  if (w && row >= 0 && column >= 0) parts = [element("b", {}, [word(matrix.rows[row])]), " reads ", element("b", {}, [word(matrix.columns[column])]), `: ${exact(w[row][column])}`];
  else if (w && row >= 0) parts = [element("b", {}, [word(matrix.rows[row])]), ...after, " reads ", ...list(matrix.columns, (j) => w[row][j])];
  else if (w && column >= 0) parts = [element("b", {}, [word(matrix.columns[column])]), " is read by ", ...list(matrix.rows, (i) => w[i][column])];
  else if (reading.log_probability !== null) {
    parts = [`log probability ${decimals(reading.log_probability)}`];
    if (reading.score !== null) parts.push(`, score ${decimals(reading.score, 3)}`);
    if (reading.waiting) parts = ["…"];
    else if (w) parts.push(". Point at a word to see its weights; a press keeps them.");
  } else if (reading.waiting) parts = ["…"];
  if (reading.cut) parts.push("; the text was too long, its rest was left out");
  if (nothing && !reading.waiting) parts.push(parts.length ? ". " : "", nothing);
  said.replaceChildren(...(parts.length ? parts : [reading.note]));
}
