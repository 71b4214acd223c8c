// How the flame graph over time is drawn: nothing that is narrower than a pixel, nothing off screen.

import { BOLD, FONT, Labels } from "./surface.js";
import { formatSeconds, ticks } from "./units.js";

export const ROW = 18;
export const HEAD = 22;
export const AXIS = 30;
export const NS = 1e-9;

export class FlamePainter {
  constructor(view) {
    this.view = view;
    this.labels = new Labels();
    this.heads = new Labels();
  }

  draw(context, width, height, scrolled) {
    const { view } = this;
    const { colours } = view;
    view.surface.setExtent(view.extent);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    view.scale = width / (view.high - view.low);
    view.visible.forEach((lane, i) => {
      const top = view.tops[i] - scrolled;
      const bottom = top + HEAD + lane.rows.length * ROW;
      if (bottom < AXIS || top > height) return;
      this.drawLane(context, lane, top, width, height);
    });
    this.drawSelection(context, width, scrolled);
    this.drawAxis(context, width);
  }

  drawLane(context, lane, top, width, height) {
    const { colours, lanes, matched, model } = this.view;
    context.fillStyle = colours.head;
    context.fillRect(0, top, width, HEAD - 2);
    context.font = BOLD;
    context.fillStyle = colours.ink;
    const name = this.heads.fit(context, model.threadName(lane.thread), width - 120);
    context.fillText(name, 6, top + HEAD / 2 - 1);
    context.font = FONT;
    const only = matched?.rows.get(lane);
    lane.rows.forEach((row, depth) => {
      const y = top + HEAD + depth * ROW;
      if (y + ROW < AXIS || y > height) return;
      this.drawRow(context, lanes.order, row, y, width, matched !== null, null);
      if (only) this.drawRow(context, matched.order, only[depth], y, width, false, colours.match);
    });
  }

  // One row: a span of at least a pixel by itself, of those within one pixel the first alone.
  drawRow(context, order, [from, to], y, width, dim, colour) {
    const { lanes, colours, low, high, scale, colouring } = this.view;
    const { start, duration, frames } = this.view.spans;
    // Pixels of one colour side by side are one rectangle.
    const run = { from: 0, to: 0, fill: "" };
    const flush = () => {
      if (run.to > run.from) {
        context.fillStyle = run.fill;
        context.fillRect(run.from, y, run.to - run.from, ROW - 1);
      }
    };
    let at = lanes.endsAfter(order, from, to, low);
    while (at < to) {
      const span = order[at];
      if (start[span] >= high) break;
      const x = (start[span] - low) * scale;
      const wide = duration[span] * scale;
      const fill = colour ?? (dim ? colours.dim : colours.fills[colouring.of[frames[span]]]);
      if (wide < 1) {
        const pixel = Math.max(0, Math.floor(x));
        if (pixel > run.to || fill !== run.fill) {
          flush();
          Object.assign(run, { from: pixel, fill });
        }
        run.to = pixel + 1;
        at = lanes.endsAfter(order, at + 1, to, low + (pixel + 1) / scale);
      } else {
        context.fillStyle = fill;
        this.drawSpan(context, span, Math.max(0, x), Math.min(width, x + wide), y, dim);
        at += 1;
      }
    }
    flush();
  }

  drawSpan(context, span, left, right, y, dim) {
    const { colours, model, spans } = this.view;
    const gap = right - left > 3 ? 1 : 0;
    context.fillRect(left, y, Math.max(1, right - left - gap), ROW - 1);
    if (right - left < 24) return;
    const text = this.labels.fit(context, model.name(spans.frames[span]), right - left - 8);
    context.fillStyle = dim ? colours.dimInk : colours.ink;
    if (text) context.fillText(text, left + 4, y + ROW / 2);
  }

  drawSelection(context, width, scrolled) {
    const { view } = this;
    for (const [span, thick] of [[view.hovered, 1], [view.selected, 2]]) {
      const row = span < 0 ? -1 : view.rowOf(span);
      if (row < 0) continue;
      const left = Math.max(0, (view.spans.start[span] - view.low) * view.scale);
      const right = Math.min(width, (view.lanes.end(span) - view.low) * view.scale);
      if (right < left) continue;
      context.strokeStyle = view.colours.select;
      context.lineWidth = thick;
      context.strokeRect(left + 0.5, row - scrolled + 0.5, Math.max(2, right - left - 2), ROW - 2);
    }
  }

  // The axis stays above; the bar at its top shows which part of all is seen.
  drawAxis(context, width) {
    const { colours, lanes, low, high, scale } = this.view;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, AXIS - 2);
    context.fillStyle = colours.head;
    context.fillRect(0, 0, width, 5);
    const whole = lanes.high - lanes.low;
    context.fillStyle = colours.soft;
    context.fillRect(((low - lanes.low) / whole) * width, 0, Math.max(3, ((high - low) / whole) * width), 5);
    context.font = FONT;
    for (const mark of ticks(low - lanes.low, high - lanes.low, width / 110)) {
      const x = (mark + lanes.low - low) * scale;
      context.fillStyle = colours.soft;
      context.fillText(formatSeconds(mark * NS), x + 4, 17);
      context.fillStyle = colours.grid;
      context.fillRect(Math.round(x), 8, 1, AXIS - 10);
    }
    context.fillStyle = colours.grid;
    context.fillRect(0, AXIS - 3, width, 1);
  }
}
