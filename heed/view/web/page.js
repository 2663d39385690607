"use strict";
// The page's state is { sentence, layer, head, shift, scale, ends }, kept in the address so that a
// link restores it.
// Words only ever reach the page as text, never as markup.

const { start, sentences } = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
for (const sentence of sentences) sentence.layers = sentence.layers.filter((layer) => layer.heads.length > 0);
const joins = { mean: "mean of heads", max: "largest of heads" };
const is_join = (head) => Object.hasOwn(joins, head);
// shift: a row shows the weights of so many steps later; scale and ends are 0 or 1.
const state = { sentence: 0, layer: 0, head: "mean", shift: 0, scale: 0, ends: 1 };
let shown = { source: [], target: [], marks: {} }; // the words that are drawn, and their marks
let weights = []; // of the chosen head, row by row; null where there is no number
let whole = []; // by row, what the darkest shade stands for
let cells = []; // of the map, by row and column, headers at index 0 of each

function element(name, properties = {}, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
const word = (text) => element("bdi", { textContent: text });
const layer_name = (layer, index) => layer.name || `layer ${index + 1}`;
// dir="auto" does not look into <bdi>, so the direction of a sentence is that of its first letter.
const direction = (words) => {
  const letter = words.join("").match(/\p{L}/u)?.[0] ?? "";
  return /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF]|[\u{10800}-\u{10FFF}]|[\u{1E800}-\u{1EFFF}]/u.test(letter) ? "rtl" : "ltr";
};
const shade = (w, of = 1) => (w === null || of <= 0 ? 0 : Math.min(1, Math.max(0, w / of)));
// What the shades of each row are relative to.
const largest_of_rows = (weights, rows, columns) => Array.from({ length: rows }, (_, i) =>
  state.scale ? Math.max(0, ...weights.slice(i * columns, (i + 1) * columns).map((w) => w ?? 0)) : 1);

// A head's weights as they are drawn: of later steps, where a head reads the word that it aligns
// (the last row, which has none, stays), and without the ends if they are hidden.
function drawn(head, sentence) {
  const columns = sentence.source.length, rows = sentence.target.length;
  if (state.shift === 0 && shown.source.length === columns && shown.target.length === rows) return head;
  const out = [];
  for (let i = 0; i < shown.target.length; ++i) {
    const from = Math.min(i + state.shift, rows - 1) * columns;
    out.push(...head.slice(from, from + shown.source.length));
  }
  return out;
}

function joined_heads(layer, head) {
  if (!is_join(head)) return layer.heads[head];
  if (layer.heads.length === 1) return layer.heads[0];
  return layer.heads[0].map((_, i) => {
    const all = layer.heads.map((weights) => weights[i]);
    if (all.includes(null)) return null;
    return head === "max" ? Math.max(...all) : all.reduce((a, b) => a + b) / all.length;
  });
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map(([value, text]) =>
    element("option", { value, textContent: text, selected: `${value}` === `${chosen}` })));
  select.parentElement.hidden = names.length < 2;
}

// ---- the address

function read_address() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const begin = { layer: start.layer, shift: start.shift ?? 0, scale: +start.scale_rows, ends: +!start.hide_ends };
  const number = (name, count) => {
    const otherwise = begin[name] ?? 0;
    const value = Number(asked.get(name) ?? otherwise);
    return Number.isInteger(value) && value >= 0 && value < count ? value : 0;
  };
  state.sentence = number("sentence", sentences.length);
  const layers = sentences[state.sentence]?.layers ?? [];
  state.layer = number("layer", layers.length);
  state.shift = start.shift === null ? 0 : number("shift", 2);
  state.scale = number("scale", 2);
  state.ends = number("ends", 2);
  const head = asked.get("head") ?? `${start.head}`;
  state.head = is_join(head) ? head : "mean";
  if (head !== null && /^\d+$/.test(head)) state.head = number("head", layers[state.layer]?.heads.length ?? 0);
}

function choose(change) {
  Object.assign(state, change);
  draw(); // may correct what was chosen
  history.replaceState(null, "", "#" + new URLSearchParams(state));
}

// ---- drawing

function draw() {
  const sentence = sentences[state.sentence];
  if (!sentence) return void ($("note").textContent = "There are no sentences on this page.");
  const layers = sentence.layers;
  state.layer = Math.min(state.layer, Math.max(0, layers.length - 1));
  const layer = layers[state.layer];
  if (layer && !is_join(state.head) && !(state.head < layer.heads.length)) state.head = "mean";
  options($("sentence"), sentences.map((s, i) => [i, `${i + 1}. ${s.target.join(" ").slice(0, 60)}`]), state.sentence);
  options($("layer"), layers.map((l, i) => [i, layer_name(l, i)]), state.layer);
  options($("head"), !layer || layer.heads.length < 2 ? []
    : [...Object.entries(joins), ...layer.heads.map((_, i) => [i, `${i + 1}`])], state.head);
  options($("shift"), start.shift === null ? [] : [[0, "that writes the word"], [1, "that reads it, the next"]], state.shift);
  const without = sentence.ends && !state.ends ? -1 : undefined;
  const within = ([i, j]) => without === undefined || (i < sentence.target.length - 1 && j < sentence.source.length - 1);
  shown = { source: sentence.source.slice(0, without), target: sentence.target.slice(0, without), marks: {} };
  for (const [kind, links] of Object.entries(sentence.marks ?? {})) shown.marks[kind] = links.filter(within);
  $("scale").checked = state.scale;
  $("ends").checked = state.ends;
  $("ends").parentElement.lastChild.textContent = ` ${sentence.target.at(-1)}`;
  $("ends").parentElement.hidden = !sentence.ends;
  weights = layer ? drawn(joined_heads(layer, state.head), sentence) : [];
  whole = largest_of_rows(weights, shown.target.length, shown.source.length);
  $("legend").hidden = weights.length === 0;
  $("kinds").hidden = !sentence.marks;
  $("unit").textContent = state.scale ? "share of the row's largest weight" : "weight";
  $("note").textContent = sentence.note;
  for (const side of ["source", "target"]) {
    $(side).replaceChildren(...shown[side].flatMap((text) => [word(text), " "]));
    $(side).dir = direction(shown[side]);
  }
  draw_map(shown);
  draw_heads(layers, sentence);
  $("search").hidden = true;
  for (const tree of document.querySelectorAll(".tree")) {
    tree.hidden = Number(tree.dataset.sentence) !== state.sentence;
    if (!tree.hidden) $("search").hidden = false;
  }
  look(-1, -1);
}

function draw_map(sentence) {
  const header = (text, scope) => element("th", { scope, tabIndex: -1 }, [word(text)]);
  const corner = element("th");
  const head = [corner, ...sentence.source.map((text) => header(text, "col"))];
  const columns = sentence.source.length;
  const body = weights.length === 0 ? [] : sentence.target.map((text, i) => [
    header(text, "row"),
    ...sentence.source.map((_, j) => {
      const w = weights[i * columns + j];
      const cell = element("td", { tabIndex: -1, textContent: w === null ? "–" : w.toFixed(2) });
      if (w === null) cell.setAttribute("aria-label", "no number");
      cell.style.setProperty("--w", shade(w, whole[i]));
      cell.classList.toggle("dark", shade(w, whole[i]) > 0.5);
      cell.classList.toggle("broken", w === null);
      return cell;
    }),
  ]);
  cells = [head, ...body];
  for (const [kind, links] of Object.entries(body.length > 0 ? sentence.marks : {}))
    for (const [i, j] of links) body[i][j + 1].classList.add(kind);
  if (body.length > 0 && columns > 0) body[0][1].tabIndex = 0;
  $("map").replaceChildren(
    element("thead", {}, [element("tr", {}, head)]),
    element("tbody", {}, body.map((row) => element("tr", {}, row))));
}

// Every head, small; a press chooses it.
function draw_heads(layers, sentence) {
  $("overview").hidden = layers.reduce((count, layer) => count + layer.heads.length, 0) < 2 || weights.length === 0;
  if ($("overview").hidden) return;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim().split(/\s+/).map(Number);
  $("heads").replaceChildren(...layers.map((layer, l) => element("tr", {}, [
    element("th", { scope: "row", textContent: layer_name(layer, l) }),
    ...layer.heads.map((head, h) => {
      const canvas = element("canvas", { width: shown.source.length, height: shown.target.length });
      paint(canvas, drawn(head, sentence), ink);
      const button = element("button", { type: "button", title: `${layer_name(layer, l)}, head ${h + 1}` }, [canvas]);
      button.setAttribute("aria-label", button.title);
      button.setAttribute("aria-pressed", l === state.layer && h === state.head);
      button.addEventListener("click", () => {
        choose({ layer: l, head: h });
        $("heads").rows[l].cells[h + 1].firstChild.focus();
      });
      return element("td", {}, [button]);
    }),
  ])));
}

function paint(canvas, head, ink) {
  const context = canvas.getContext("2d");
  if (!context) return;
  if (canvas.width === 0 || canvas.height === 0) return;
  const image = context.createImageData(canvas.width, canvas.height);
  const whole = largest_of_rows(head, canvas.height, canvas.width);
  head.forEach((w, i) => image.data.set([...ink, Math.round(255 * shade(w, whole[Math.floor(i / canvas.width)]))], 4 * i));
  context.putImageData(image, 0, 0);
}

// ---- looking at a word or a cell

// Row and column count from 0; -1 is none. A row's weights show on the source words, a column's on
// the target words.
function look(row, column) {
  const { source, target } = shown;
  const columns = source.length;
  const at = (i, j) => weights[i * columns + j] ?? null;
  const here = weights.length > 0;
  for (const lit of document.querySelectorAll("#map .lit, #map .here")) lit.classList.remove("lit", "here");
  if (here && row >= 0) cells[row + 1].forEach((cell) => cell.classList.add("lit"));
  if (column >= 0) cells.forEach((cells_of_row) => cells_of_row[column + 1].classList.add("lit"));
  if (here && row >= 0 && column >= 0) cells[row + 1][column + 1].classList.add("here");
  const show = (list, lit, weight) => [...list.querySelectorAll("bdi")].forEach((bdi, i) => {
    bdi.classList.toggle("lit", i === lit);
    bdi.style.setProperty("--w", weight === null ? 0 : weight(i));
  });
  show($("source"), column, here && row >= 0 ? (j) => shade(at(row, j), whole[row]) : null);
  show($("target"), row, here && column >= 0 ? (i) => shade(at(i, column), whole[i]) : null);
  const number = (w) => (w === null ? "no number" : `${Number(w.toPrecision(6))}`);
  const largest = (words, weight) => words.map((text, i) => [text, weight(i)])
    .sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1)).slice(0, 5)
    .flatMap(([text, w], i) => [i > 0 ? ", " : "", word(text), ` ${number(w)}`]);
  const say = [];
  if (here && row >= 0 && column >= 0) {
    const in_kind = (kind) => (shown.marks[kind] ?? []).some(([i, j]) => i === row && j === column);
    const kinds = [in_kind("sure") ? "; gold, sure" : in_kind("possible") ? "; gold, possible" : "", in_kind("predicted") ? "; predicted" : ""];
    say.push(word(target[row]), " ← ", word(source[column]), `: ${number(at(row, column))}${kinds.join("")}`);
  }
  else if (here && row >= 0) say.push(word(target[row]), " ← ", ...largest(source, (j) => at(row, j)));
  else if (here && column >= 0) say.push(word(source[column]), " → ", ...largest(target, (i) => at(i, column)));
  $("exact").replaceChildren(...say);
}

// Where an element of the map stands, headers at -1; nothing for the corner.
function place(target) {
  const cell = target.closest?.("#map td, #map th");
  if (!cell) return null;
  const at = { row: cell.parentElement.rowIndex - 1, column: cell.cellIndex - 1 };
  return at.row < 0 && at.column < 0 ? null : at;
}

$("map").addEventListener("pointerover", (event) => {
  const at = place(event.target);
  if (at) look(at.row, at.column);
});
$("map").addEventListener("pointerleave", () => {
  const at = place(document.activeElement);
  look(at?.row ?? -1, at?.column ?? -1);
});
$("map").addEventListener("focusin", (event) => {
  const at = place(event.target);
  if (at) look(at.row, at.column);
});
$("map").addEventListener("click", (event) => event.target.closest("td, th")?.focus());
$("map").addEventListener("keydown", (event) => {
  const at = place(event.target);
  if (!at || event.altKey || event.metaKey) return;
  const last = { row: cells.length - 2, column: cells[0].length - 2 };
  const moves = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
    Home: [0, -last.column - 2], End: [0, last.column + 2], PageUp: [-10, 0], PageDown: [10, 0],
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const within = (value, low, high) => Math.min(high, Math.max(low, value));
  const row = within(at.row + move[0], at.column < 0 ? 0 : -1, last.row);
  const column = within(at.column + move[1], row < 0 ? 0 : -1, last.column);
  event.target.tabIndex = -1; // one cell at a time can be reached with Tab
  cells[row + 1][column + 1].tabIndex = 0;
  cells[row + 1][column + 1].focus();
});
for (const [id, at] of [["source", (i) => [-1, i]], ["target", (i) => [i, -1]]]) {
  $(id).addEventListener("pointerover", (event) => {
    const index = [...$(id).querySelectorAll("bdi")].indexOf(event.target.closest("bdi"));
    if (index >= 0) look(...at(index));
  });
  $(id).addEventListener("pointerleave", () => look(-1, -1));
}
$("sentence").addEventListener("change", (event) => choose({ sentence: Number(event.target.value) }));
$("layer").addEventListener("change", (event) => choose({ layer: Number(event.target.value) }));
$("head").addEventListener("change", (event) => choose({
  head: is_join(event.target.value) ? event.target.value : Number(event.target.value),
}));
$("shift").addEventListener("change", (event) => choose({ shift: Number(event.target.value) }));
for (const id of ["scale", "ends"]) $(id).addEventListener("change", (event) => choose({ [id]: +event.target.checked }));
$("numbers").addEventListener("change", (event) => $("map").classList.toggle("numbers", event.target.checked));
$("choices").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => { read_address(); draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

read_address();
draw();
