// The sunburst: the whole in the middle, what it called around it, as wide as what it took.

import { BOLD, FONT, Labels } from "./surface.js";

const TURN = 2 * Math.PI;
const MARGIN = 8;
const MOST_RINGS = 16;
const THINNEST = 14;

export class Sunburst {
  constructor(view) {
    this.view = view;
    this.labels = new Labels();
    this.titles = new Labels();
  }

  extent() {
    return 0;
  }

  // Centre, radius of the middle, and thickness of a ring.
  shape(width, height) {
    const { tree, zoomed, levels, cutoff } = this.view;
    const radius = Math.max(40, Math.min(width, height) / 2 - MARGIN);
    const most = Math.min(levels, MOST_RINGS, Math.floor(radius / THINNEST));
    const least = Math.max(cutoff, 0.6 / (TURN * radius)) * tree.total[zoomed];
    const rings = Math.max(1, Math.min(most, tree.rows(zoomed, least)) - 1);
    const middle = Math.min(radius * 0.3, Math.max(60, radius / (rings + 1)));
    return { x: width / 2, y: height / 2, middle, ring: (radius - middle) / rings, rings, least };
  }

  draw(context, width, height) {
    const { tree, colours, frameWindow: seen } = this.view;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    const shape = this.shape(width, height);
    const scale = TURN / Math.max(Number.MIN_VALUE, seen.high - seen.low);
    const waiting = [this.view.anchor];
    while (waiting.length) {
      const node = waiting.pop();
      const level = tree.depth[node] - seen.depth;
      if (level > 0.01) this.arc(context, shape, node, level, scale);
      if (level + 1 > shape.rings + 0.01) continue;
      for (let i = tree.first[node]; i < tree.first[node + 1]; i += 1) {
        const child = tree.children[i];
        const wide = tree.total[child] * scale;
        if (tree.total[child] < shape.least || wide * this.outer(shape, level + 1) < 0.6) break;
        const from = (tree.start[child] - seen.low) * scale;
        if (from < TURN && from + wide > 0) waiting.push(child);
      }
    }
    this.centre(context, shape);
  }

  inner(shape, level) {
    return shape.middle + (level - 1) * shape.ring;
  }

  outer(shape, level) {
    return shape.middle + level * shape.ring;
  }

  arc(context, shape, node, level, scale) {
    const { tree, colours, frameWindow: seen } = this.view;
    const from = Math.max(0, (tree.start[node] - seen.low) * scale);
    const to = Math.min(TURN, (tree.start[node] + tree.total[node] - seen.low) * scale);
    const inner = Math.max(0, this.inner(shape, level));
    const outer = this.outer(shape, level);
    if (to <= from || outer <= shape.middle) return;
    const { fill, ink } = this.view.paintOf(node);
    const quarter = TURN / 4;
    context.beginPath();
    context.arc(shape.x, shape.y, outer, from - quarter, to - quarter);
    context.arc(shape.x, shape.y, inner, to - quarter, from - quarter, true);
    context.closePath();
    context.fillStyle = fill;
    context.fill();
    const chosen = node === this.view.selected;
    if (chosen || node === this.view.hovered || (to - from) * outer > 3) {
      context.strokeStyle = chosen || node === this.view.hovered ? colours.select : colours.paper;
      context.lineWidth = chosen ? 2 : 1;
      context.stroke();
    }
    this.label(context, shape, node, from, to, inner, ink);
  }

  // Names follow the ring where they fit, else run outwards; none is upside down.
  label(context, shape, node, from, to, inner, ink) {
    const radius = inner + shape.ring / 2;
    const length = (to - from) * radius;
    if (length < 15 || shape.ring < 12) return;
    const name = this.view.tree.boxName(node);
    const angle = (from + to) / 2 - TURN / 4;
    const whole = this.labels.fit(context, name, length - 10);
    const bend = this.labels.width(name) ** 2 / (8 * radius);
    const along = whole === name && bend < shape.ring / 2 - 7;
    const text = along ? name : this.labels.fit(context, name, shape.ring - 8);
    if (!text) return;
    context.save();
    context.translate(shape.x, shape.y);
    context.fillStyle = ink;
    if (along) {
      const below = Math.sin(angle) > 0;
      context.rotate(below ? angle - TURN / 4 : angle + TURN / 4);
      context.textAlign = "center";
      context.fillText(text, 0, below ? radius : -radius);
    } else {
      const flipped = Math.cos(angle) < 0;
      context.rotate(flipped ? angle + Math.PI : angle);
      context.textAlign = flipped ? "right" : "left";
      context.fillText(text, flipped ? -inner - 4 : inner + 4, 0);
    }
    context.restore();
  }

  centre(context, shape) {
    const { tree, zoomed, colours } = this.view;
    context.beginPath();
    context.arc(shape.x, shape.y, shape.middle - 1, 0, TURN);
    context.fillStyle = colours.head;
    context.fill();
    if (zoomed === this.view.selected) {
      context.strokeStyle = colours.select;
      context.lineWidth = 2;
      context.stroke();
    }
    context.textAlign = "center";
    context.fillStyle = colours.ink;
    context.font = BOLD;
    context.fillText(this.titles.fit(context, tree.name(zoomed), shape.middle * 1.7), shape.x, shape.y - 9);
    context.font = FONT;
    context.fillStyle = colours.soft;
    context.fillText(this.labels.fit(context, this.view.noteOf(zoomed), shape.middle * 1.8), shape.x, shape.y + 9);
    context.textAlign = "left";
  }

  hit(x, y, width, height) {
    const { tree, zoomed } = this.view;
    const shape = this.shape(width, height);
    const distance = Math.hypot(x - shape.x, y - shape.y);
    if (distance < shape.middle) return zoomed;
    const level = Math.floor((distance - shape.middle) / shape.ring) + 1;
    if (level > shape.rings) return -1;
    const turn = (Math.atan2(y - shape.y, x - shape.x) / TURN + 1.25) % 1;
    const place = tree.start[zoomed] + turn * tree.total[zoomed];
    const node = tree.find(zoomed, place, tree.depth[zoomed] + level);
    return node >= 0 && tree.total[node] >= shape.least ? node : -1;
  }
}
