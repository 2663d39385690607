// Every head of every layer, small: a press makes one large, a tick lays it over the others in a
// colour of its own.

import { $, direction, element, put_attribute, put_style, roving } from "./dom.js";
import { choose, state } from "./state.js";
import { kind_names, layers_of, matrix_of, shown_head } from "./reading.js";
import { colors, head_color, shade, shade_color, shade_pixel } from "./palette.js";
import { options_now, overlaid } from "./panel.js";

let drawn = ""; // what the canvases show

function paint_small(canvas, { weights, whole, columns }) {
  canvas.width = Math.max(1, columns.length);
  canvas.height = Math.max(1, weights.length);
  const context = canvas.getContext("2d"), picture = context.createImageData(canvas.width, canvas.height), pixels = new Uint32Array(picture.data.buffer);
  const last = direction(columns) === "rtl" ? columns.length - 1 : 0; // as the large map runs
  weights.forEach((row, i) => row.forEach((w, j) => (pixels[i * canvas.width + Math.abs(last - j)] = shade_pixel(shade(w, whole[i])))));
  context.putImageData(picture, 0, 0);
}

const with_heads = (count, layer) => (layer.style.setProperty("--heads", count), layer);

// All of them as one picture, to be taken along.
function heads_scene(layers, matrix_at) {
  const size = 104, gap = 14, left = 96, c = colors(), shapes = [], most = Math.max(...layers.map((l) => l.heads.length));
  layers.forEach((layer, l) => {
    const y = l * (size + gap + 14) + gap;
    shapes.push({ text: layer.name || `layer ${l + 1}`, x: 10, y: y + size / 2, size: 14, face: "sans", fill: c.quiet });
    layer.heads.forEach((_, h) => {
      const { weights, whole, columns } = matrix_at(l, h), x = left + h * (size + gap);
      const wide = size / columns.length, high = size / weights.length, back = direction(columns) === "rtl";
      shapes.push({ rect: [x, y, size, size], fill: shade_color(0) });
      weights.forEach((row, i) => row.forEach((w, j) => {
        const share = shade(w, whole[i]);
        if (share > 0.05) shapes.push({ rect: [x + (back ? columns.length - 1 - j : j) * wide, y + i * high, wide, high], fill: shade_color(share) });
      }));
      shapes.push({ text: `${h + 1}`, x: x + size / 2, y: y + size + 14, size: 12, face: "sans", anchor: "middle", fill: c.quiet });
    });
  });
  const width = left + most * (size + gap), height = layers.length * (size + gap + 14) + gap;
  return { width, height, name: "All heads", shapes: [{ rect: [0, 0, width, height], fill: c.paper }, ...shapes] };
}

// Press with Shift or tick the box: laid over.
function toggle(name, reading, side) {
  const now = overlaid(reading, side).map((h) => `${h.layer}.${h.head}`);
  const next = now.includes(name) ? now.filter((n) => n !== name) : [...now, name].slice(-8);
  choose({ overlay: next.join(" ") }, 0);
}

export function draw_heads(reading, theme) {
  const side = state.sides[0], layers = layers_of(reading, side);
  const count = layers.reduce((sum, l) => sum + l.heads.length, 0);
  $("heads").hidden = count < 2;
  if (count < 2) return void (drawn = "");
  $("heads-kind").textContent = reading.past ? "text reads its past" : kind_names[side.kind];
  const key = JSON.stringify([side.kind, side.shift, options_now(), theme, reading.source.pieces, reading.target.pieces, layers.map((l) => l.heads[0][0])]);
  if (key !== drawn) {
    drawn = key;
    $("all-heads").replaceChildren(...layers.map((layer, l) =>
      with_heads(layer.heads.length, element("div", { className: "layer", role: "group", aria: { label: `layer ${layer.name || l + 1}` } }, [
        element("span", { className: "layer-name" }, [layer.name || `layer ${l + 1}`]),
        ...layer.heads.map((_, h) => {
          const canvas = element("canvas", { aria: { hidden: "true" } });
          paint_small(canvas, matrix_of(reading, side, options_now(), { layer: l, head: h }));
          const title = `layer ${layer.name || l + 1}, head ${h + 1}`;
          const press = element("button", { type: "button", title, data: { head: `${l}.${h}` }, aria: { label: title } }, [canvas]);
          press.addEventListener("click", (e) => (e.shiftKey ? toggle(`${l}.${h}`, reading, side) : choose({ layer: l, head: h, overlay: "" }, 0)));
          const tick = element("input", { type: "checkbox", aria: { label: `lay ${title} over` } });
          tick.addEventListener("change", () => toggle(`${l}.${h}`, reading, side));
          return element("span", { className: "small" }, [press, element("label", {}, [tick, element("span", { aria: { hidden: "true" } }, [`${h + 1}`])])]);
        }),
      ]))));
    roving($("all-heads"), [...$("all-heads").querySelectorAll("button, input")], 0);
  }
  $("all-heads").scene = () => heads_scene(layers, (layer, head) => matrix_of(reading, side, options_now(), { layer, head }));
  const chosen = shown_head(reading, side), over = overlaid(reading, side).map((h) => `${h.layer}.${h.head}`);
  for (const press of $("all-heads").querySelectorAll("button")) {
    const name = press.dataset.head, at = over.indexOf(name);
    put_attribute(press, "aria-pressed", `${over.length ? at >= 0 : name === `${chosen.layer}.${chosen.head}`}`);
    put_style(press.parentElement, "--color", at >= 0 ? head_color(at) : "");
    press.parentElement.classList.toggle("over", at >= 0);
    press.nextSibling.firstChild.checked = at >= 0;
  }
}
