// Taking along what is on screen: as a picture in print quality, as data, as a link, as a file that
// needs no server. And the legend, which every picture has.

import { $, element, label_of, offer } from "./dom.js";
import { address, state } from "./state.js";
import { colors, head_color, shade, shade_color } from "./palette.js";
import { moved, paint, prepare, text_width, to_svg } from "./scene.js";
import { overlaid } from "./panel.js";

const ticks = [0, 0.05, 0.25, 0.5, 1];
const print_density = 3; // of a screen's: about 300 dots an inch

// Colours of heads that are laid over each other, as many in a row as there is room for; then shades.
function legend_scene(reading, room = Infinity) {
  const c = colors(), each = 118, bar = 180, shapes = [], heads = overlaid(reading, state.sides[0]);
  const in_row = Math.max(1, Math.min(heads.length, Math.floor((room - 8) / each))), top = Math.ceil(heads.length / in_row) * 22;
  heads.forEach((h, i) => {
    const x = 8 + (i % in_row) * each, y = Math.floor(i / in_row) * 22;
    shapes.push({ rect: [x, y + 4, 12, 12], fill: head_color(i) });
    shapes.push({ text: `layer ${h.layer + 1}, head ${h.head + 1}`, x: x + 17, y: y + 14, size: 12, face: "sans", fill: c.text });
  });
  for (let x = 0; x < bar; ++x) shapes.push({ rect: [8 + x, top + 4, 1.2, 12], fill: shade_color(x / (bar - 1)) });
  for (const t of ticks) shapes.push({ text: `${t}`, x: 8 + shade(t) * bar, y: top + 29, size: 11, face: "sans", anchor: "middle", fill: c.quiet });
  const name = state.scale ? "of the row’s largest" : heads.length > 1 ? "mean weight" : "weight";
  shapes.push({ text: name, x: 18 + bar, y: top + 15, size: 12, face: "sans", fill: c.quiet });
  return { width: Math.max(26 + bar + text_width(name, 12, "sans"), 8 + in_row * each), height: top + 34, shapes };
}

let drawn = ""; // what the legend shows
export function draw_legend(reading) {
  const room = $("legend").clientWidth, key = JSON.stringify([room, devicePixelRatio, state.scale, overlaid(reading, state.sides[0]), colors().paper]);
  if (drawn !== key) {
    const { width, height, shapes } = legend_scene(reading, room);
    paint(prepare($("legend").querySelector("canvas"), width, height), shapes);
    drawn = key;
  }
  $("predicted-key").hidden = !reading.gold?.predicted;
  const ribbons = state.sides[0].kind === "cross" && !reading.past;
  $("gold-key").hidden = !ribbons || !(state.gold || reading.gold);
  $("gold").parentElement.hidden = !ribbons;
  const figures = [["lines", ribbons ? "words and ribbons" : "words and arcs"], ["map", "map"]];
  if (!$("heads").hidden) figures.push(["heads", "all heads"]);
  if (reading.tree.length > 1) figures.push(["beam", "beam"]);
  offer($("figure"), figures, figures.some(([name]) => name === $("figure").value) ? $("figure").value : "lines");
}

// ---- taking

function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// All figures that are shown, one below the other, with the legend.
function whole_scene(world, panels) {
  const parts = [];
  for (const panel of panels.filter((p) => !p.hidden)) {
    const { ribbons, arcs, map } = panel.parts, which = $("figure").value;
    if (which === "beam") parts.push($("tree").scene());
    else if (which === "heads") parts.push($("all-heads").scene());
    else if (which === "map" && !map.hidden) parts.push(map.scene());
    else parts.push((ribbons.hidden ? arcs : ribbons).scene());
    if (which === "beam" || which === "heads") break;
  }
  if ($("figure").value !== "beam") parts.push(legend_scene(world.reading()));
  const width = Math.max(...parts.map((p) => p.width));
  let height = 0;
  const shapes = [];
  for (const p of parts) {
    for (const s of p.shapes) shapes.push(moved(s, 0, height));
    height += p.height + 8;
  }
  return { width, height, shapes: [{ rect: [0, 0, width, height], fill: colors().paper }, ...shapes], name: `${world.reading().source.text} → ${world.reading().target.text}` };
}

// A table of the weights that are shown; what would break it is a space.
export const to_tsv = ({ rows, columns, weights }) =>
  ["", ...columns].map(label_of).join("\t") + "\n" +
  rows.map((r, i) => [label_of(r), ...weights[i].map((w) => (w === null ? "" : Number(w.toPrecision(6))))].join("\t")).join("\n") + "\n";

export function set_up_take(world, panels) {
  const said = (text) => ($("taken").textContent = text);
  const actions = {
    svg: () => save("attention.svg", "image/svg+xml", to_svg(whole_scene(world, panels))),
    png: () => {
      const { width, height, shapes } = whole_scene(world, panels), canvas = document.createElement("canvas");
      paint(prepare(canvas, width, height, Math.min(print_density, 12000 / Math.max(width, height))), shapes);
      canvas.toBlob((blob) => blob && save("attention.png", "image/png", blob));
    },
    tsv: () => panels.filter((p) => !p.hidden && p.matrix?.weights).forEach((p, i) => save(`weights${i ? "-2" : ""}.tsv`, "text/tab-separated-values", to_tsv(p.matrix))),
    json: () => save("attention.json", "application/json", JSON.stringify(world.data(), null, 1)),
    link: async () => {
      history.replaceState(null, "", address());
      await navigator.clipboard.writeText(location.href);
      said("The link is on the clipboard.");
    },
    file: async () => {
      const response = await fetch("view.html");
      if (!response.ok) throw new Error(`the server said ${response.status}`);
      const data = JSON.stringify(world.data()).replaceAll("<", "\\u003c");
      save("attention.html", "text/html", (await response.text()).replace('<script type="application/json" id="data">null', () => `<script type="application/json" id="data">${data}`));
    },
  };
  for (const [name, action] of Object.entries(actions))
    $(`take-${name}`).addEventListener("click", async () => {
      said("");
      try { await action(); } catch (error) { said(error.message); }
    });
  $("take-file").hidden = !world.live;
}
