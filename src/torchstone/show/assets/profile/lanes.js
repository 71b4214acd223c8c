// Spans, sorted into a lane a thread and a row a depth, so that what is on screen is found at once.

export class Lanes {
  // Spans come ordered by thread, then start, the longer first.
  constructor(spans, model) {
    this.spans = spans;
    this.count = spans.frames.length;
    this.parent = new Int32Array(this.count).fill(-1);
    this.depth = new Int32Array(this.count);
    this.own = Float64Array.from(spans.duration);
    this.threads = [];
    this.nest();
    this.sortRows();
    this.low = this.count ? Infinity : 0;
    this.high = this.count ? -Infinity : 1;
    for (let i = 0; i < this.count; i += 1) {
      if (spans.start[i] < this.low) this.low = spans.start[i];
      if (this.end(i) > this.high) this.high = this.end(i);
    }
    if (!(this.high > this.low)) this.high = this.low + 1;
    const rank = (lane) => (model.threads[lane.thread]?.critical ? 0 : 1);
    this.threads.sort((a, b) => rank(a) - rank(b));
  }

  end(span) {
    return this.spans.start[span] + this.spans.duration[span];
  }

  nest() {
    const { threads, start, duration } = this.spans;
    let open = [];
    let lane = null;
    for (let i = 0; i < this.count; i += 1) {
      if (!lane || lane.thread !== threads[i]) {
        lane = { thread: threads[i], from: i, rows: [], depth: 0, spans: 0 };
        this.threads.push(lane);
        open = [];
      }
      while (open.length && this.end(open[open.length - 1]) <= start[i]) open.pop();
      this.depth[i] = open.length;
      if (open.length) {
        this.parent[i] = open[open.length - 1];
        this.own[this.parent[i]] -= duration[i];
      }
      open.push(i);
      lane.spans += 1;
      if (open.length > lane.depth) lane.depth = open.length;
    }
  }

  // `order` holds the spans row by row; a row is a stretch of it, with starts and ends both rising.
  sortRows() {
    this.order = new Int32Array(this.count);
    this.place = new Int32Array(this.count);
    let at = 0;
    for (const lane of this.threads) {
      const sizes = new Int32Array(lane.depth);
      const to = lane.from + lane.spans;
      for (let i = lane.from; i < to; i += 1) sizes[this.depth[i]] += 1;
      const next = new Int32Array(lane.depth);
      for (let row = 0; row < lane.depth; row += 1) {
        lane.rows.push([at, at + sizes[row]]);
        next[row] = at;
        at += sizes[row];
      }
      for (let i = lane.from; i < to; i += 1) {
        this.place[i] = next[this.depth[i]]++;
        this.order[this.place[i]] = i;
      }
    }
  }

  // The first place of a row from `from` on whose span ends after a time.
  endsAfter(order, from, to, time) {
    let low = from;
    let step = 1;
    // Gallop: the next span on screen is mostly near.
    while (low + step < to && this.end(order[low + step]) <= time) {
      low += step;
      step *= 2;
    }
    let high = Math.min(to, low + step);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(order[middle]) <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The span of a row at a time; -1 where there is none. `slack` is how near is near enough.
  at([from, to], time, slack) {
    const place = this.endsAfter(this.order, from, to, time - slack);
    if (place >= to) return -1;
    const span = this.order[place];
    return this.spans.start[span] <= time + slack ? span : -1;
  }

  // The same rows, with nothing but the spans of matching frames.
  only(matches) {
    const kept = this.order.filter((span) => matches[this.spans.frames[span]] === 1);
    const rows = new Map();
    let at = 0;
    for (const lane of this.threads) {
      rows.set(lane, lane.rows.map(([, to]) => {
        const from = at;
        while (at < kept.length && this.place[kept[at]] < to) at += 1;
        return [from, at];
      }));
    }
    return { order: kept, rows };
  }

  // From the outermost span down to this one.
  path(span) {
    const spans = [];
    for (let at = span; at >= 0; at = this.parent[at]) spans.push(at);
    return spans.reverse();
  }

  firstChild(span) {
    for (let i = span + 1; i < this.count && this.spans.start[i] < this.end(span); i += 1) {
      if (this.parent[i] === span) return i;
    }
    return -1;
  }

  // How often a frame ran, and how long in all, by itself.
  sums(frame) {
    let [count, own, longest] = [0, 0, 0];
    for (let i = 0; i < this.count; i += 1) {
      if (this.spans.frames[i] !== frame) continue;
      count += 1;
      own += Math.max(0, this.own[i]);
      if (this.spans.duration[i] > longest) longest = this.spans.duration[i];
    }
    return { count, own, longest };
  }
}
