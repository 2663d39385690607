// A figure as a list of shapes, drawn on a canvas (the screen, PNG) or written as SVG (print): both
// from the same numbers.
//   { rect: [x, y, width, height], fill }      { ribbons: [[x, y, ...] ...], fill, alpha }
//   { path: "M ...", stroke, width, alpha }    { text, x, y, size, fill, anchor, turn, weight, face }

import { label_of } from "./dom.js";

const style = getComputedStyle(document.documentElement), faces = { serif: style.getPropertyValue("--serif"), sans: style.getPropertyValue("--sans") };
const font = (shape) => `${shape.weight ?? 400} ${shape.size}px ${faces[shape.face ?? "serif"]}`;

// The same elsewhere. Of a path, absolute commands move, relative ones stay.
const moved_path = (path, x, y) => path.replace(/([MCLV])([^A-Za-z]*)/g, (_, letter, numbers) =>
  letter + numbers.trim().split(/[\s,]+/).map((v, i) => Number(v) + (letter === "V" || i % 2 ? y : x)).join(" "));
export function moved(s, x, y) {
  if (s.rect) return { ...s, rect: [s.rect[0] + x, s.rect[1] + y, s.rect[2], s.rect[3]] };
  if (s.ribbons) return { ...s, ribbons: s.ribbons.map((r) => r.map((v, i) => v + (i % 2 ? y : x))) };
  return s.path ? { ...s, path: moved_path(s.path, x, y) } : { ...s, x: s.x + x, y: s.y + y };
}

// A ribbon goes from one segment to another: eight numbers, the corners a, b and d, c of its two ends;
// `down`: ends lie above each other, else beside. In its middle is a curve whose control points stand
// straight above and below the ends. Where that goes aslant, a ribbon as wide along a line of words as
// at its ends would be a thread, and one as thick would hide those that it crosses: it is between them,
// thinner by the root of the cosine.
function ribbon_path(put, [ax, ay, bx, by, cx, cy, dx, dy], down) {
  const [a, b, c, d, top, foot] = down ? [ax, bx, cx, dx, ay, dy] : [ay, by, cy, dy, ax, dx], begin = (a + b) / 2, far = (c + d) / 2 - begin;
  const point = (t, side) => {
    const gone = t * t * (3 - 2 * t), slope = (far * 6 * t * (1 - t)) / ((foot - top) * (1.5 - 3 * t + 3 * t * t));
    const half = ((b - a + (c - d - b + a) * gone) / 2) * Math.sqrt(Math.sqrt(1 + slope * slope));
    const p = [begin + far * gone + side * half, top + (foot - top) * (1.5 * t * (1 - t) + t ** 3)];
    return down ? p : p.reverse();
  };
  const parts = 6, small = 1e-3;
  const near = (t, side, way) => point(t, side).map((v, i) => v + ((point(t + small, side)[i] - point(t - small, side)[i]) * way) / (6 * small * parts));
  const edge = (side, way) => {
    for (let k = 0, t = way > 0 ? 0 : 1; k < parts; ++k, t += way / parts)
      put.bezierCurveTo(...near(t, side, way), ...near(t + way / parts, side, -way), ...point(t + way / parts, side));
  };
  put.moveTo(...point(0, -1));
  edge(-1, 1);
  put.lineTo(...point(1, 1));
  edge(1, -1);
  put.closePath();
}

let measuring = null;
const widths = new Map(); // that were measured before
export function text_width(text, size, face = "serif", weight = 400) {
  const key = `${size} ${face} ${weight} ${text}`;
  if (widths.has(key)) return widths.get(key);
  if (widths.size > 5000) widths.clear();
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = font({ size, face, weight });
  const { width } = measuring.measureText(label_of(text));
  widths.set(key, width);
  return width;
}

// At most so wide; ends in an ellipsis if there was more.
export function fitted(text, size, most, face = "serif") {
  const whole = [...label_of(text)];
  if (text_width(text, size, face) <= most) return whole.join("");
  let low = 0, high = whole.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (text_width(whole.slice(0, middle).join("") + "…", size, face) <= most) low = middle;
    else high = middle - 1;
  }
  return whole.slice(0, low).join("") + "…";
}

export function paint(context, shapes) {
  for (const s of shapes) {
    context.globalAlpha = s.alpha ?? 1;
    if (s.rect) {
      if (s.fill) (context.fillStyle = s.fill), context.fillRect(...s.rect);
      if (s.stroke) (context.strokeStyle = s.stroke), (context.lineWidth = s.width ?? 1), context.setLineDash(s.dash ?? []), context.strokeRect(...s.rect);
    } else if (s.ribbons) {
      context.fillStyle = s.fill;
      for (const r of s.ribbons) { // one path of them all takes a browser a hundred times as long
        context.beginPath();
        ribbon_path(context, r, s.down);
        context.fill();
      }
    } else if (s.path) {
      context.lineWidth = s.width ?? 1;
      context.setLineDash(s.dash ?? []);
      const p = new Path2D(s.path);
      if (s.fill) (context.fillStyle = s.fill), context.fill(p);
      if (s.stroke) (context.strokeStyle = s.stroke), context.stroke(p);
    } else if (s.text !== undefined) {
      context.save();
      context.translate(s.x, s.y);
      if (s.turn) context.rotate((s.turn * Math.PI) / 180);
      context.font = font(s);
      context.fillStyle = s.fill;
      context.textAlign = { middle: "center", end: "right" }[s.anchor] ?? "left";
      context.textBaseline = "alphabetic";
      context.fillText(label_of(s.text), 0, 0);
      context.restore();
    }
  }
  context.globalAlpha = 1;
}

// A canvas of this size in CSS pixels, sharp on every screen; of what is huge, as sharp as a browser can.
const most_pixels = 16e6;
const sharpness = (width, height) => Math.min(3, devicePixelRatio || 1, Math.sqrt(most_pixels / Math.max(1, width * height)));
export function prepare(canvas, width, height, density = sharpness(width, height)) {
  const w = Math.max(1, Math.round(width * density)), h = Math.max(1, Math.round(height * density));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w, canvas.height = h;
    canvas.style.width = `${width}px`, canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// ---- SVG

const escaped = (text) =>
  label_of(text).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);
const short = (value) => `${Math.round(value * 100) / 100}`;

class Path {
  d = "";
  moveTo(...p) { this.d += `M${p.map(short).join(" ")}`; }
  lineTo(...p) { this.d += `L${p.map(short).join(" ")}`; }
  bezierCurveTo(...p) { this.d += `C${p.map(short).join(" ")}`; }
  closePath() { this.d += "Z"; }
}

function written(s) {
  const look = (s.fill ? ` fill="${s.fill}"` : ' fill="none"') + (s.alpha < 1 ? ` opacity="${short(s.alpha)}"` : "") +
    (s.stroke ? ` stroke="${s.stroke}" stroke-width="${short(s.width ?? 1)}"` : "") + (s.dash ? ` stroke-dasharray="${s.dash}"` : "");
  if (s.rect) return `<rect x="${short(s.rect[0])}" y="${short(s.rect[1])}" width="${short(s.rect[2])}" height="${short(s.rect[3])}"${look}/>`;
  if (s.ribbons) {
    const path = new Path();
    for (const r of s.ribbons) ribbon_path(path, r, s.down);
    return `<path d="${path.d}"${look}/>`;
  }
  if (s.path) return `<path d="${s.path}"${look}/>`;
  const place = s.turn ? `transform="translate(${short(s.x)} ${short(s.y)}) rotate(${s.turn})"` : `x="${short(s.x)}" y="${short(s.y)}"`;
  return `<text ${place} font-family="${escaped(faces[s.face ?? "serif"])}" font-size="${short(s.size)}" font-weight="${s.weight ?? 400}"` +
    ` text-anchor="${s.anchor ?? "start"}"${look}>${escaped(s.text)}</text>`;
}

export const to_svg = ({ width, height, shapes, name }) =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${short(width)}" height="${short(height)}" viewBox="0 0 ${short(width)} ${short(height)}" role="img">` +
  `<title>${escaped(name)}</title>\n${shapes.map(written).join("\n")}\n</svg>\n`;
