// Call paths, laid out: every node knows its total, its depth and where it stands beside the others.
//
// Node 0 stands above all; where there are several threads, the next nodes are the threads. A
// node's children stand side by side from its start, the largest first; its own weight comes last.

export class Tree {
  constructor(raw, model, label) {
    this.model = model;
    this.unit = raw.unit;
    this.label = label;
    const heads = this.addHeads(raw);
    this.count = raw.parents.length + heads;
    this.parent = new Int32Array(this.count).fill(-1);
    this.frame = new Int32Array(this.count).fill(-1);
    this.own = new Float64Array(this.count);
    this.calls = raw.calls ? new Float64Array(this.count) : null;
    for (let i = 1; i < heads; i += 1) this.parent[i] = 0;
    for (let i = 0; i < raw.parents.length; i += 1) {
      const node = i + heads;
      const above = raw.parents[i];
      this.parent[node] = above >= 0 ? above + heads : this.headOf(raw.threads[i]);
      this.frame[node] = raw.frames[i];
      this.own[node] = Math.max(0, raw.own[i]);
      if (this.calls) this.calls[node] = raw.calls[i];
    }
    this.heads = heads;
    this.layOut();
  }

  // Which nodes stand for threads: none where there is but one.
  addHeads(raw) {
    const used = new Set(raw.threads);
    const order = [...used].sort((a, b) => this.rank(a) - this.rank(b) || a - b);
    this.threads = order.length > 1 ? order : [];
    this.headNumber = new Map(this.threads.map((thread, i) => [thread, i + 1]));
    return this.threads.length + 1;
  }

  rank(thread) {
    return this.model.threads[thread]?.critical ? 0 : 1;
  }

  headOf(thread) {
    return this.headNumber.get(thread) ?? 0;
  }

  layOut() {
    const { count, parent, own } = this;
    const total = (this.total = own.slice());
    const first = (this.first = new Int32Array(count + 1));
    const depth = (this.depth = new Int32Array(count));
    for (let i = count - 1; i > 0; i -= 1) total[parent[i]] += total[i];
    for (let i = 1; i < count; i += 1) {
      first[parent[i] + 1] += 1;
      depth[i] = depth[parent[i]] + 1;
    }
    for (let i = 0; i < count; i += 1) first[i + 1] += first[i];
    const next = first.slice();
    const children = (this.children = new Int32Array(Math.max(0, count - 1)));
    for (let i = 1; i < count; i += 1) children[next[parent[i]]++] = i;
    const start = (this.start = new Float64Array(count));
    for (let i = 0; i < count; i += 1) {
      const family = children.subarray(first[i], first[i + 1]);
      if (family.length > 1) family.sort((a, b) => total[b] - total[a]);
      let place = start[i];
      for (const child of family) {
        start[child] = place;
        place += total[child];
      }
    }
  }

  name(node) {
    if (this.frame[node] >= 0) return this.model.name(this.frame[node]);
    if (node > 0) return this.model.threadName(this.threads[node - 1]);
    return this.label;
  }

  boxName(node) {
    if (this.frame[node] >= 0) return this.model.boxName(this.frame[node]);
    if (node > 0) return this.model.threadName(this.threads[node - 1]);
    return this.label;
  }

  childrenOf(node) {
    return this.children.subarray(this.first[node], this.first[node + 1]);
  }

  // From `top` down to the node.
  path(node, top = 0) {
    const nodes = [];
    for (let at = node; at >= 0; at = this.parent[at]) {
      nodes.push(at);
      if (at === top) break;
    }
    return nodes.reverse();
  }

  isUnder(node, top) {
    let at = node;
    while (at >= 0 && this.depth[at] > this.depth[top]) at = this.parent[at];
    return at === top;
  }

  // The node at a place and a depth beneath `top`; -1 where there is none.
  find(top, place, depth) {
    let node = top;
    while (this.depth[node] < depth) {
      let low = this.first[node];
      let high = this.first[node + 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.start[this.children[middle]] <= place) low = middle + 1;
        else high = middle;
      }
      if (low === this.first[node]) return -1;
      const child = this.children[low - 1];
      if (place >= this.start[child] + this.total[child]) return -1;
      node = child;
    }
    return node;
  }

  // How many rows stand beneath and with `top`, counting nodes of at least this weight.
  rows(top, least) {
    let deepest = this.depth[top];
    const waiting = [top];
    while (waiting.length) {
      const node = waiting.pop();
      if (this.depth[node] > deepest) deepest = this.depth[node];
      for (let i = this.first[node]; i < this.first[node + 1]; i += 1) {
        const child = this.children[i];
        if (this.total[child] < least || this.total[child] <= 0) break;
        waiting.push(child);
      }
    }
    return deepest - this.depth[top] + 1;
  }

  // What matching frames took beneath `top`, a match within a match counted once.
  matched(top, matches) {
    // 0 elsewhere, 1 beneath `top`, 2 beneath a match.
    const state = new Uint8Array(this.count);
    let sum = 0;
    for (let i = top; i < this.count; i += 1) {
      const above = i === top ? 1 : state[this.parent[i]];
      if (above === 0) continue;
      const match = this.frame[i] >= 0 && matches[this.frame[i]] === 1;
      if (match && above === 1) sum += this.total[i];
      state[i] = match ? 2 : above;
    }
    return sum;
  }

  // The largest node of a frame beneath `top`.
  largest(frame, top = 0) {
    let best = -1;
    for (let i = 0; i < this.count; i += 1) {
      if (this.frame[i] !== frame || (best >= 0 && this.total[i] <= this.total[best])) continue;
      if (this.isUnder(i, top)) best = i;
    }
    return best;
  }

  // Own, total (a recursion counted once) and calls of every frame.
  get byFrame() {
    this.gathered ??= this.sums(this.frame, this.model.count);
    return this.gathered;
  }

  // The same of every key, where `keys` has one for each node, or -1. A key within itself counts once.
  sums(keys, count) {
    const own = new Float64Array(count);
    const total = new Float64Array(count);
    const calls = this.calls ? new Float64Array(count) : null;
    const open = new Uint32Array(count);
    const next = this.first.slice();
    let node = 0;
    while (node >= 0) {
      const key = keys[node];
      if (next[node] === this.first[node] && key >= 0) {
        own[key] += this.own[node];
        if (calls) calls[key] += this.calls[node];
        if (open[key] === 0) total[key] += this.total[node];
        open[key] += 1;
      }
      if (next[node] < this.first[node + 1]) {
        next[node] += 1;
        node = this.children[next[node] - 1];
      } else {
        if (key >= 0) open[key] -= 1;
        node = this.parent[node];
      }
    }
    return { own, total, calls };
  }
}
