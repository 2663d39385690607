// Weights as a map: a row for each word that reads, a column for each that is read. Words stay in
// sight while the map scrolls. Columns of a sentence from right to left run that way.

import { colors, shade, shade_color, shade_pixel } from "./palette.js";
import { direction, element, exact, large, within } from "./dom.js";
import { hover, pin, state } from "./state.js";
import { fitted, moved, paint, prepare, text_width } from "./scene.js";

const smallest = 11, of_number = 30, longest_label = 150; // px
const largest = () => (large() ? 58 : 46), text_size = () => (large() ? 18 : 15);

export const make_map = () => {
  const map = element("div", { className: "map", tabIndex: 0, role: "application", aria: { roledescription: "heat map" } },
    ["top", "left", "cells"].map((name) => element("canvas", { className: name, aria: { hidden: "true" } })));
  const scroll = element("div", { className: "scroll", hidden: true }, [map]);
  const cells = map.lastChild;
  const place = (event) => {
    const box = cells.getBoundingClientRect(), { cell, rows, columns, column_at } = map.geometry;
    const x = Math.floor((event.clientX - box.left) / cell), y = Math.floor((event.clientY - box.top) / cell);
    return x >= 0 && y >= 0 && x < columns && y < rows ? [y, column_at(x)] : [-1, -1];
  };
  cells.addEventListener("pointermove", (event) => hover(...place(event)));
  cells.addEventListener("pointerleave", () => hover(-1, -1));
  cells.addEventListener("click", (event) => pin(...place(event)));
  map.addEventListener("keydown", (event) => {
    const { rows, columns, column_at } = map.geometry;
    const way = column_at(0) === 0 ? 1 : -1;
    const move = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -way], ArrowRight: [0, way],
      Home: [0, -columns], End: [0, columns], PageUp: [-10, 0], PageDown: [10, 0],
    }[event.key];
    if (event.key === "Escape") return pin(-1, -1);
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    hover(-1, -1);
    pin(within(state.row + move[0], 0, rows - 1), within(state.column + move[1], 0, columns - 1));
  });
  return scroll;
};

function map_geometry(matrix, { width, numbers }) {
  const label = Math.min(longest_label, width * 0.34, Math.max(30, ...matrix.rows.map((r) => text_width(r, text_size(), "serif", 700))) + 16);
  const cell = within(Math.floor((width - label - 14) / Math.max(1, matrix.columns.length)), numbers ? of_number : smallest, largest());
  const longest = Math.max(...matrix.columns.map((c) => text_width(c, text_size(), "serif", 700)));
  const upright = longest < cell - 3, top = upright ? text_size() + 14 : Math.min(longest_label, Math.max(20, longest)) + 14; // else they stand on end
  const back = direction(matrix.columns) === "rtl", columns = matrix.columns.length;
  return { label, cell, top, upright, rows: matrix.rows.length, columns, column_at: (x) => (back ? columns - 1 - x : x) };
}

const pale = 0.15; // rows that are not written yet

// Every cell as a shape, to be taken along.
function cell_scene(matrix, { geometry: { cell, rows, columns, column_at }, dim }) {
  const cells = [];
  for (let i = 0; i < rows; ++i)
    for (let x = 0; x < columns; ++x) {
      const w = matrix.weights[i][column_at(x)];
      if (w !== null) cells.push({ rect: [x * cell, i * cell, cell - 1, cell - 1], fill: shade_color(shade(w, matrix.whole[i])), alpha: i > dim ? pale : 1 });
    }
  return cells;
}

// The same on screen: a picture of one pixel a cell, enlarged, and lines of paper between cells.
const one_each = document.createElement("canvas");
function paint_cells(context, matrix, { geometry: { cell, rows, columns, column_at }, dim }) {
  one_each.width = columns, one_each.height = rows;
  const small = one_each.getContext("2d"), picture = small.createImageData(columns, rows), pixels = new Uint32Array(picture.data.buffer);
  for (let i = 0; i < rows; ++i)
    for (let x = 0; x < columns; ++x) {
      const w = matrix.weights[i][column_at(x)];
      if (w !== null) pixels[i * columns + x] = shade_pixel(shade(w, matrix.whole[i]));
    }
  small.putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  const written = Math.min(rows, dim + 1);
  context.drawImage(one_each, 0, 0, columns, written, 0, 0, columns * cell, written * cell);
  context.globalAlpha = pale;
  if (written < rows) context.drawImage(one_each, 0, written, columns, rows - written, 0, written * cell, columns * cell, (rows - written) * cell);
  context.globalAlpha = 1;
  context.fillStyle = colors().paper;
  for (let x = 1; x <= columns; ++x) context.fillRect(x * cell - 1, 0, 1, rows * cell);
  for (let i = 1; i <= rows; ++i) context.fillRect(0, i * cell - 1, columns * cell, 1);
}

// What is on cells beside their colour: crosses where there is no number, numbers, links, what is
// looked at.
function mark_scene(matrix, { geometry, look, links, numbers, dim }) {
  const { cell, rows, columns, column_at } = geometry;
  const c = colors(), cells = [];
  for (let i = 0; i < rows; ++i)
    for (let x = 0; x < columns; ++x) {
      const w = matrix.weights[i][column_at(x)], share = shade(w, matrix.whole[i]);
      if (w === null) cells.push({ path: `M${x * cell + 3} ${i * cell + 3}l${cell - 6} ${cell - 6}m0 ${6 - cell}l${6 - cell} ${cell - 6}`, stroke: c.quiet });
      else if (numbers && i <= dim && w >= 0.005)
        cells.push({ text: w.toFixed(2).replace(/^0/, ""), x: (x + 0.5) * cell, y: (i + 0.5) * cell + 4, size: large() ? 13 : 11, face: "sans", anchor: "middle", fill: share > 0.62 ? c.on_dark : c.on_light });
    }
  for (const l of links) {
    const x = column_at(l.column) * cell, y = l.row * cell;
    if (l.predicted) cells.push({ path: `M${x + cell / 2 - 3.5} ${y + cell / 2}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0`, fill: c.paper, stroke: c.text });
    else cells.push({ rect: [x + 0.5, y + 0.5, cell - 2, cell - 2], stroke: c.gold, width: 2.5, dash: l.sure ? undefined : [3, 2] });
  }
  if (look.row >= 0) cells.push({ rect: [0, look.row * cell - 0.5, columns * cell - 1, cell], stroke: c.lit, width: 1.5 });
  if (look.column >= 0) cells.push({ rect: [column_at(look.column) * cell - 0.5, 0, cell, rows * cell - 1], stroke: c.lit, width: 1.5 });
  if (look.row >= 0 && look.column >= 0) cells.push({ rect: [column_at(look.column) * cell, look.row * cell, cell - 1, cell - 1], stroke: c.lit, width: 3 });
  return cells;
}

function label_scenes(matrix, { geometry, look }) {
  const { cell, label, top, column_at, upright } = geometry, c = colors(), size = within(cell - 2, 10, text_size());
  const labels = (texts, chosen, most, place) => texts.map((text, i) => ({
    text: fitted(text, size, most), size, fill: i === chosen ? c.lit : c.text, weight: i === chosen ? 700 : 400, ...place(i),
  }));
  const middle = (j) => (column_at(j) + 0.5) * cell;
  return {
    left: labels(matrix.rows, look.row, label - 12, (i) => ({ x: label - 8, y: (i + 0.5) * cell + size * 0.34, anchor: "end" })),
    top: upright
      ? labels(matrix.columns, look.column, cell, (j) => ({ x: middle(j), y: top - 8, anchor: "middle" }))
      : labels(matrix.columns, look.column, top - 10, (j) => ({ x: middle(j) + size * 0.34, y: top - 6, turn: -90 })),
  };
}

// What was chosen comes into sight, beside and below the words that stay; of a row, its largest weight.
export function reveal_cell(scroll, { weights }, { row, column }) {
  if (scroll.hidden) return;
  const { cell, label, top, column_at } = scroll.firstChild.geometry;
  const into = (at, low, room) => (at < low ? at : at + cell > low + room ? at + cell - room : low);
  if (row >= 0) scroll.scrollTop = into(row * cell, scroll.scrollTop, scroll.clientHeight - top);
  if (row >= 0 && column < 0) column = weights[row].indexOf(Math.max(...weights[row]));
  if (column >= 0) scroll.scrollLeft = into(column_at(column) * cell, scroll.scrollLeft, scroll.clientWidth - label);
}

export function draw_map(scroll, { matrix, look, links, numbers, dim, name, waiting }) {
  const map = scroll.firstChild, [top, left, cells] = map.children;
  // Until weights are there, the last ones keep their room, so nothing below moves.
  if (waiting) return;
  scroll.hidden = !matrix.weights || matrix.rows.length === 0 || matrix.columns.length === 0;
  if (scroll.hidden) return;
  const geometry = (map.geometry = map_geometry(matrix, { width: scroll.clientWidth, numbers }));
  const { cell, label, rows, columns } = geometry;
  const width = columns * cell, height = rows * cell;
  map.style.gridTemplateColumns = `${label}px ${width}px`;
  const marks = mark_scene(matrix, { geometry, look, links, numbers, dim });
  const key = JSON.stringify([matrix.rows, matrix.columns, look, cell, label, colors().text]);
  if (map.labels_key !== key) {
    const labels = label_scenes(matrix, { geometry, look });
    paint(prepare(top, width, geometry.top), labels.top);
    paint(prepare(left, label, height), labels.left);
    map.labels_key = key;
  }
  const context = prepare(cells, width, height);
  paint_cells(context, matrix, { geometry, dim });
  paint(context, marks);
  const at = (row, column) => `${matrix.rows[row]} reads ${matrix.columns[column]}: ${exact(matrix.weights[row][column])}`;
  map.setAttribute("aria-label", `${name}, ${rows} rows, ${columns} columns; arrow keys go from weight to weight` +
    (look.row >= 0 && look.column >= 0 ? `. ${at(look.row, look.column)}` : ""));
  scroll.scene = () => {
    const labels = label_scenes(matrix, { geometry, look }), shapes = [...cell_scene(matrix, { geometry, dim }), ...marks];
    const put = (list, x, y) => list.map((s) => moved(s, x, y));
    return {
      width: label + width + 16, height: geometry.top + height + 16, name,
      shapes: [{ rect: [0, 0, label + width + 16, geometry.top + height + 16], fill: colors().paper },
        ...put(labels.top, label + 8, 8), ...put(labels.left, 8, geometry.top + 8), ...put(shapes, label + 8, geometry.top + 8)],
    };
  };
}
