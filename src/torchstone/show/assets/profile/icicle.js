// The icicle: the whole above, what it called beneath it, as wide as what it took.

import { FONT, Labels } from "./surface.js";

export const ROW = 22;
const NARROWEST = 0.6;
const INSET = 5;

export class Icicle {
  constructor(view) {
    this.view = view;
    this.labels = new Labels();
    this.notes = new Labels();
  }

  // The least weight that is drawn.
  least(width) {
    const { tree, zoomed, cutoff } = this.view;
    return Math.max(cutoff, NARROWEST / Math.max(1, width)) * tree.total[zoomed];
  }

  extent(width) {
    const { tree, zoomed, levels } = this.view;
    return Math.min(levels, tree.rows(zoomed, this.least(width))) * ROW;
  }

  draw(context, width, height, scrolled) {
    const { tree, colours, frameWindow: seen, levels } = this.view;
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    const scale = width / Math.max(Number.MIN_VALUE, seen.high - seen.low);
    const least = this.least(width);
    const lowest = Math.min(levels, (height + scrolled) / ROW);
    const waiting = [this.view.anchor];
    while (waiting.length) {
      const node = waiting.pop();
      const row = tree.depth[node] - seen.depth;
      const x = (tree.start[node] - seen.low) * scale;
      if (row > -1) this.bar(context, node, x, tree.total[node] * scale, row * ROW - scrolled, width);
      if (row + 1 >= lowest) continue;
      for (let i = tree.first[node]; i < tree.first[node + 1]; i += 1) {
        const child = tree.children[i];
        const left = (tree.start[child] - seen.low) * scale;
        if (left > width) break;
        const wide = tree.total[child] * scale;
        if (wide < NARROWEST || tree.total[child] < least || tree.total[child] <= 0) {
          this.rest(context, node, left, scale, (row + 1) * ROW - scrolled, width);
          break;
        }
        if (left + wide >= 0) waiting.push(child);
      }
    }
    this.mark(context, this.view.selected, scale, scrolled, width);
  }

  // The children that are too narrow to draw one by one.
  rest(context, node, left, scale, y, width) {
    const { tree, colours, frameWindow: seen } = this.view;
    const end = tree.start[node] + tree.total[node] - tree.own[node];
    const right = Math.min(width, (end - seen.low) * scale);
    if (right - left < 1 || y < -ROW) return;
    context.fillStyle = colours.rest;
    context.fillRect(Math.max(0, left), y, right - Math.max(0, left), ROW - 1);
  }

  bar(context, node, x, wide, y, width) {
    const left = Math.max(0, x);
    const right = Math.min(width, x + wide);
    if (right <= left || y < -ROW) return;
    const { fill, ink } = this.view.paintOf(node);
    const gap = right - left > 3 ? 1 : 0;
    context.fillStyle = fill;
    context.fillRect(left, y, right - left - gap, ROW - 1);
    if (node === this.view.hovered) this.outline(context, left, y, right - left - gap);
    const room = right - left - 2 * INSET;
    const name = this.labels.fit(context, this.view.tree.boxName(node), room);
    if (!name) return;
    context.fillStyle = ink;
    context.fillText(name, left + INSET, y + ROW / 2);
    const used = this.labels.width(name) || room;
    const note = this.view.noteOf(node);
    if (room - used > 90 && this.notes.fit(context, note, room - used - 16) === note) {
      context.globalAlpha = 0.66;
      context.fillText(note, right - gap - INSET - this.notes.width(note), y + ROW / 2);
      context.globalAlpha = 1;
    }
  }

  outline(context, left, y, wide) {
    context.strokeStyle = this.view.colours.select;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, y + 0.5, Math.max(1, wide - 1), ROW - 2);
  }

  mark(context, node, scale, scrolled, width) {
    if (node < 0) return;
    const { tree, colours, frameWindow: seen } = this.view;
    const y = (tree.depth[node] - seen.depth) * ROW - scrolled;
    const left = Math.max(1, (tree.start[node] - seen.low) * scale);
    const right = Math.min(width - 1, (tree.start[node] + tree.total[node] - seen.low) * scale);
    if (right < left || y < -1) return;
    context.strokeStyle = colours.select;
    context.lineWidth = 2;
    context.strokeRect(left, y + 1, Math.max(2, right - left - 2), ROW - 3);
  }

  // The node at a place of the canvas; -1 where there is none.
  hit(x, y, width, height, scrolled) {
    const { tree, zoomed, levels } = this.view;
    const row = Math.floor((y + scrolled) / ROW);
    if (row < 0 || row >= levels) return -1;
    const place = tree.start[zoomed] + (x / width) * tree.total[zoomed];
    const node = tree.find(zoomed, place, tree.depth[zoomed] + row);
    return node >= 0 && tree.total[node] >= this.least(width) ? node : -1;
  }
}
