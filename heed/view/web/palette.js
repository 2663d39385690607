// Colours. Weights are shades of one blue; several heads have the colours of Okabe and Ito, which
// colour-blind people can tell apart; what is looked at is vermilion.

const named = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let known = null;
export const forget_colors = () => (known = null);

// "#rrggbb" to numbers and back.
const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const between = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
const mixed = (a, b, t) => `rgb(${between(a, b, t).join(" ")})`;

export function colors() {
  if (known) return known;
  const ramp = ["--w0", "--w1", "--w2", "--w3"].map((name) => parts(named(name)));
  const steps = Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * 3, k = Math.min(2, Math.floor(at));
    return between(ramp[k], ramp[k + 1], at - k);
  });
  known = {
    shades: steps.map((rgb) => `rgb(${rgb.join(" ")})`),
    pixels: Uint32Array.from(steps, ([r, g, b]) => 0xff000000 | (b << 16) | (g << 8) | r), // of an ImageData
    paper: named("--paper"), text: named("--text"), quiet: named("--quiet"), line: named("--line"),
    ink: named("--ink"), lit: named("--lit"), gold: named("--gold"), on_dark: named("--on-dark"), on_light: named("--on-light"),
    less: named("--less"), more: named("--more"),
    heads: Array.from({ length: 8 }, (_, i) => named(`--head${i}`)),
  };
  return known;
}

// The share of full colour of a weight: its root, since a linear scale hides what is weak.
export const shade = (w, whole = 1) => (w === null ? 0 : Math.sqrt(Math.min(1, Math.max(0, w / whole))));
export const shade_color = (share) => colors().shades[Math.round(255 * share)];
export const shade_pixel = (share) => colors().pixels[Math.round(255 * share)];
export const head_color = (i) => colors().heads[i % 8];
// A number of either sign: orange below zero, blue above.
export function signed_color(value, most) {
  const { paper, less, more } = colors();
  return mixed(parts(paper), parts(value < 0 ? less : more), Math.min(1, Math.abs(value) / (most || 1)));
}
