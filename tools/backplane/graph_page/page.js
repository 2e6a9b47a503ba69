// Draws the explanation of a session: layers from the inputs down, a box for each node of the model, a diamond for each
// copy. What is drawn is also said in the list, which is what a screen reader and a search in the page find.
'use strict';

const data = JSON.parse(document.getElementById('explanation').textContent);
const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 150, HEIGHT = 38, GAP_X = 26, GAP_Y = 46;
const STRIP_GAP = 220;    // between strips of layers, where edges go up again
const LABEL_SCALE = .45;  // names are drawn from here on: smaller ones cannot be read
const PALETTE = ['#8fc1e3', '#f2b880', '#a8d5a2', '#d7b3e6', '#f2a7b5', '#c9cf7a', '#8fd6cf', '#d9c2a5'];
const GREY = '#c3c9d0';

function element(tag, attributes, parent, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function html(tag, parent, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.appendChild(made);
  return made;
}

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
  return (unit === 0 ? bytes : bytes.toFixed(bytes < 10 ? 1 : 0)) + ' ' + units[unit];
}

function shortened(text, length) { return text.length > length ? text.slice(0, length - 1) + '\u2026' : text; }

// ---- The graph: boxes (nodes, and what comes in and goes out) and who reads what.

const boxes = [];
const maker = new Map();  // value -> box
for (const input of data.inputs) {
  const box = {kind: 'input', name: input.name, title: input.name, sub: input.type, reads: []};
  boxes.push(box);
  maker.set(input.name, box);
}
for (const node of data.nodes) {
  const box = {kind: 'node', node, name: node.name, title: node.op, sub: node.name, reads: node.inputs || []};
  boxes.push(box);
  for (const output of node.outputs || []) if (output) maker.set(output, box);
}
for (const output of data.outputs) {
  boxes.push({kind: 'output', name: output.name, title: output.name, sub: output.type, reads: [output.name]});
}
for (const box of boxes) {
  box.before = [...new Set(box.reads.map(value => maker.get(value)).filter(from => from && from !== box))];
  box.after = [];
}
for (const box of boxes) for (const from of box.before) from.after.push(box);

// ---- Layers by the longest path, without recursion: graphs may be deep.

function layOut() {
  const waiting = new Map(boxes.map(box => [box, box.before.length]));
  const ready = boxes.filter(box => box.before.length === 0);
  for (const box of boxes) box.layer = 0;
  while (ready.length) {
    const box = ready.pop();
    for (const next of box.after) {
      next.layer = Math.max(next.layer, box.layer + 1);
      waiting.set(next, waiting.get(next) - 1);
      if (waiting.get(next) === 0) ready.push(next);
    }
  }
  const layers = [];
  for (const box of boxes) (layers[box.layer] = layers[box.layer] || []).push(box);
  const present = layers.filter(layer => layer);
  for (const layer of present) layer.forEach((box, place) => { box.place = place; });
  const mean = (list, key) => list.reduce((sum, box) => sum + box[key], 0) / list.length;
  for (let sweep = 0; sweep < 4; ++sweep) {
    for (const layer of sweep % 2 ? [...present].reverse() : present) {
      for (const box of layer) {
        const others = sweep % 2 ? box.after : box.before;
        box.wish = others.length ? mean(others, 'place') : box.place;
      }
      layer.sort((a, b) => a.wish - b.wish);
      layer.forEach((box, place) => { box.place = place; });
    }
  }
  present.forEach(layer => {
    let free = -Infinity;
    const wishes = layer.map((box, place) => box.before.length ? mean(box.before, 'x') : place * (WIDTH + GAP_X));
    layer.forEach((box, place) => {
      box.x = Math.max(free, wishes[place]);
      free = box.x + WIDTH + GAP_X;
    });
    const shift = layer.reduce((sum, box, place) => sum + wishes[place] - box.x, 0) / layer.length;
    for (const box of layer) box.x += shift;
  });
  wrap(present);
}

/// A deep graph is cut into strips, side by side, as many as show it largest: one column of a thousand layers is a line.
const strips = [];
function wrap(layers) {
  const room = svg.getBoundingClientRect();
  const cutInto = count => {
    const depth = Math.ceil(layers.length / count), made = [];
    for (let first = 0; first < layers.length; first += depth) made.push(layers.slice(first, first + depth));
    return made.map(strip => {
      const all = strip.flat();
      return {layers: strip, x0: Math.min(...all.map(box => box.x)), x1: Math.max(...all.map(box => box.x)) + WIDTH};
    });
  };
  let best = null, largest = 0;
  for (let count = 1; count <= Math.min(60, layers.length); ++count) {
    const cut = cutInto(count);
    const width = cut.reduce((sum, strip) => sum + strip.x1 - strip.x0 + STRIP_GAP, 0);
    const height = cut[0].layers.length * (HEIGHT + GAP_Y) + STRIP_GAP;
    const shown = Math.min(1.4, room.width / width, room.height / height);
    if (shown > largest * 1.05) { largest = shown; best = cut; }
  }
  let x = 0;
  (best || []).forEach((strip, number) => {
    strip.layers.forEach((layer, row) => {
      for (const box of layer) { box.x += x - strip.x0; box.y = row * (HEIGHT + GAP_Y); box.strip = number; }
    });
    strips.push({x, width: strip.x1 - strip.x0, bottom: strip.layers.length * (HEIGHT + GAP_Y), first: strip.layers[0][0]});
    x += strip.x1 - strip.x0 + STRIP_GAP;
  });
}

// ---- Colours: one per provider, grey for what the host evaluates and for what is gone.

const counts = new Map();
for (const node of data.nodes) {
  const provider = node.provider || 'removed';
  counts.set(provider, (counts.get(provider) || 0) + 1);
}
const colours = new Map();
for (const provider of [...counts.keys()].sort()) {
  const plain = provider === 'host' || provider === 'removed';
  colours.set(provider, plain ? GREY : PALETTE[[...colours.values()].filter(c => c !== GREY).length % PALETTE.length]);
}
const colourOf = node => colours.get(node.provider || 'removed');

// ---- Drawing

const svg = document.getElementById('graph');
const view = document.getElementById('view');
const edgeLayer = document.getElementById('edges');
const nodeLayer = document.getElementById('nodes');
const copyLayer = document.getElementById('copies');
const nodeList = document.getElementById('node-list');
const copyList = document.getElementById('copy-list');

function edgePath(from, to) {
  const x0 = from.x + WIDTH / 2, y0 = from.y + HEIGHT, x1 = to.x + WIDTH / 2, y1 = to.y;
  if (from.strip === to.strip) {
    const bend = Math.max(18, (y1 - y0) / 2);
    return `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`;
  }
  // Down, up again in the gap before the strip of the reader, and down into it.
  const gap = strips[to.strip].x - STRIP_GAP / 3, low = strips[from.strip].bottom, high = -GAP_Y / 2;
  return `M${x0} ${y0}V${low}H${gap}V${high}H${x1}V${y1}`;
}

/// Edges that lie together are one path, so that there are few to lay out and those out of sight cost nothing.
function drawEdges() {
  const copied = new Set(data.copies.map(copy => copy.value));
  const paths = new Map();
  for (const box of boxes) {
    for (const from of box.before) {
      const crosses = box.reads.some(value => copied.has(value) && maker.get(value) === from);
      const wraps = from.strip !== box.strip;
      const key = `${wraps} ${crosses} ${box.strip} ${wraps ? 0 : Math.floor(box.y / 1600)}`;
      if (!paths.has(key)) paths.set(key, {class: `edge${crosses ? ' copied' : ''}${wraps ? ' wrapped' : ''}`, d: []});
      paths.get(key).d.push(edgePath(from, box));
    }
  }
  for (const path of paths.values()) element('path', {class: path.class, d: path.d.join('')}, edgeLayer);
}

function drawBox(box) {
  const border = box.kind !== 'node';
  box.drawn = element('g', {class: border ? 'node border' : 'node', transform: `translate(${box.x} ${box.y})`}, nodeLayer);
  box.drawn.dataset.name = box.name;
  box.drawn.dataset.kind = box.kind;
  const rect = element('rect', {width: WIDTH, height: HEIGHT}, box.drawn);
  if (!border) {
    rect.setAttribute('fill', colourOf(box.node));
    box.drawn.dataset.provider = box.node.provider || '';
  }
  box.drawn.addEventListener('click', () => choose(box, true));
  box.drawn.addEventListener('pointerenter', () => explainOnHover(box), {once: true});
}

/// What a box is called, and what a pointer that rests on it is told, are made when they can be seen.
function explainOnHover(box) {
  const text = box.kind === 'node' ? hoverText(box.node) : `${box.kind} ${box.name}: ${box.sub}`;
  element('title', {}, box.drawn, text);
}
function drawLabel(box) {
  box.label = [element('text', {x: 8, y: 16}, box.drawn, shortened(box.title, 20)),
    element('text', {x: 8, y: 30, class: 'sub'}, box.drawn, box.sub.length > 28 ? '\u2026' + box.sub.slice(-27) : box.sub)];
}

function hoverText(node) {
  const lines = [`${node.name} (${node.op}) on ${node.provider || 'nothing: ' + node.kernel}`];
  for (const reason of node.reasons) lines.push(`${reason.provider}: ${reason.text}`);
  return lines.join('\n');
}

/// Milliseconds by step name, from a profile that was given with the page.
const times = new Map();
for (const event of (data.profile || {}).traceEvents || []) {
  if (event.ph !== 'X' || ['session', 'run', 'device'].includes(event.cat)) continue;
  const seen = times.get(event.name) || {ms: 0, count: 0};
  times.set(event.name, {ms: seen.ms + event.dur / 1000, count: seen.count + 1});
}
function timeText(name) {
  const time = times.get(name);
  return time && `${(time.ms / time.count).toFixed(3)} ms (${time.count} ${time.count === 1 ? 'run' : 'runs'})`;
}

function rows(table, entries) {
  for (const [key, value] of entries) {
    if (value === undefined || value === null || value === '') continue;
    html('dt', table, key);
    html('dd', table, value);
  }
}

function listBox(box) {
  const node = box.node;
  box.listed = html('details', nodeList, undefined, 'node-row');
  box.listed.dataset.name = node.name;
  nodeRows.set(box.listed, box);
  const summary = html('summary', box.listed, node.name + ' ');
  html('small', summary, `${node.op} on ${node.provider || 'nothing'}`);
  box.fill = () => {
    if (table.childElementCount) return;
    rows(table, [
      ['kernel', node.kernel], ['fused into', node.fused_into], ['time', timeText(node.fused_into || node.name)],
      ['inputs', (node.inputs || []).join(', ')], ['outputs', (node.outputs || []).join(', ')],
    ]);
  };
  const table = html('dl', box.listed);
  if (!node.reasons.length) return;
  const reasons = html('ul', box.listed);
  for (const reason of node.reasons) {
    const item = html('li', reasons, undefined, 'reason');
    item.dataset.code = reason.code;
    html('b', item, `${reason.provider}, ${reason.code}: `);
    item.append(reason.text);
  }
}

const readersOf = new Map();  // value -> boxes
for (const box of boxes) {
  for (const value of new Set(box.reads)) readersOf.set(value, [...(readersOf.get(value) || []), box]);
}

const copyRows = new Map();  // row of the list -> copy
const nodeRows = new Map();

/// A copy lies between who makes the value and who reads it.
function drawCopy(copy, number) {
  const from = maker.get(copy.value);
  const readers = readersOf.get(copy.value) || [];
  const to = readers.find(box => box.node && box.node.provider === copy.to) || readers[0];
  const box = {kind: 'copy', name: copy.value, copy};
  let a = from || to || boxes[0], b = to || from || boxes[0];
  if (a.strip !== b.strip) a = b;
  box.x = (a.x + b.x) / 2 + WIDTH / 2 + 14 * (number % 3);
  box.y = a === b ? a.y - GAP_Y / 2 : a.y + HEIGHT + GAP_Y / 2;
  box.drawn = element('g', {class: 'copy', transform: `translate(${box.x} ${box.y})`}, copyLayer);
  box.drawn.dataset.value = copy.value;
  element('path', {d: 'M0 -9L11 0L0 9L-11 0Z'}, box.drawn);
  box.tag = element('text', {x: 15, y: 4}, box.drawn, bytesText(copy.bytes));
  element('title', {}, box.drawn, `${copy.value}: ${copy.from} to ${copy.to}, ${bytesText(copy.bytes)}; ${copy.cause}`);
  box.drawn.addEventListener('click', () => choose(box, true));
  box.listed = html('details', copyList, undefined, 'copy-row');
  const summary = html('summary', box.listed, copy.value + ' ');
  html('small', summary, `${copy.from} to ${copy.to}, ${bytesText(copy.bytes)}`);
  rows(html('dl', box.listed), [['cause', copy.cause], ['bytes', String(copy.bytes)]]);
  copyRows.set(box.listed, box);
  return box;
}

// ---- Moving about

let scale = 1, left = 0, top_ = 0, isPlaced = true;

/// At most once a frame, however many events there are.
function place() {
  if (isPlaced) requestAnimationFrame(placeNow);
  isPlaced = false;
}

const labelled = new Set();
function placeNow() {
  isPlaced = true;
  view.setAttribute('transform', `translate(${left} ${top_}) scale(${scale})`);
  const far = scale < LABEL_SCALE;
  svg.classList.toggle('far', far);
  edgeLayer.setAttribute('stroke-width', Math.min(6, Math.max(1.4, .45 / scale)));
  marks.setAttribute('font-size', 11 / scale);
  const room = svg.getBoundingClientRect();
  const x0 = -left / scale - WIDTH, x1 = (room.width - left) / scale;
  const y0 = -top_ / scale - HEIGHT, y1 = (room.height - top_) / scale;
  for (const box of boxes) {
    const seen = !far && box.x > x0 && box.x < x1 && box.y > y0 && box.y < y1;
    if (seen === labelled.has(box)) continue;
    if (seen) {
      drawLabel(box);
      labelled.add(box);
    } else {
      for (const text of box.label) text.remove();
      labelled.delete(box);
    }
  }
}

/// What each strip begins with, legible at every scale.
const marks = element('g', {id: 'marks'}, view);
function drawMarks() {
  if (strips.length < 2) return;
  for (const strip of strips) {
    const mark = element('text', {x: strip.x, y: -GAP_Y}, marks, shortened(strip.first.name, 13));
    element('title', {}, mark, strip.first.name);
  }
}

function fit() {
  const xs = boxes.map(box => box.x), ys = boxes.map(box => box.y);
  const x0 = Math.min(...xs), y0 = Math.min(...ys) - (strips.length > 1 ? STRIP_GAP : 0);
  const width = Math.max(...xs) - x0 + WIDTH, height = Math.max(...ys) - y0 + HEIGHT;
  const room = svg.getBoundingClientRect();
  scale = Math.max(.02, Math.min(1.4, room.width / (width + 60), room.height / (height + 60)));
  left = (room.width - width * scale) / 2 - x0 * scale;
  top_ = (room.height - height * scale) / 2 - y0 * scale;
  place();
}

function show(box) {
  const room = svg.getBoundingClientRect();
  scale = Math.min(1.4, Math.max(scale, .8));
  left = room.width / 2 - (box.x + WIDTH / 2) * scale;
  top_ = room.height / 2 - (box.y + HEIGHT / 2) * scale;
  place();
}

function zoom(factor, x, y) {
  const next = Math.max(.02, Math.min(6, scale * factor));
  left = x - (x - left) * next / scale;
  top_ = y - (y - top_) * next / scale;
  scale = next;
  place();
}

svg.addEventListener('wheel', event => {
  event.preventDefault();
  const room = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 500), event.clientX - room.left, event.clientY - room.top);
}, {passive: false});

let grip = null;
svg.addEventListener('pointerdown', event => { grip = {x: event.clientX - left, y: event.clientY - top_}; });
window.addEventListener('pointermove', event => {
  if (!grip) return;
  left = event.clientX - grip.x;
  top_ = event.clientY - grip.y;
  place();
});
window.addEventListener('pointerup', () => { grip = null; });

// ---- Choosing and searching

let chosen = null;
function choose(box, open) {
  if (chosen) for (const part of [chosen.drawn, chosen.listed]) if (part) part.classList.remove('chosen');
  chosen = box;
  for (const part of [box.drawn, box.listed]) if (part) part.classList.add('chosen');
  if (box.fill) box.fill();
  if (box.listed && open) { box.listed.open = true; box.listed.scrollIntoView({block: 'nearest'}); }
  if (!open) show(box);
}

/// One listener for both lists; opening and closing is the browser's.
for (const [list, rowsOf] of [[nodeList, nodeRows], [copyList, copyRows]]) {
  list.addEventListener('click', event => {
    const summary = event.target.closest('summary');
    if (summary) choose(rowsOf.get(summary.parentElement), false);
  });
}

const search = document.getElementById('search');
let found = [], next = 0, hits = new Set();
for (const box of boxes) {
  box.words = [box.name, box.title, box.node && box.node.provider, box.node && box.node.kernel].join(' ').toLowerCase();
}
/// Touches only what changes: what is not found is dimmed and hidden by the style sheet.
function find() {
  const words = search.value.trim().toLowerCase().split(/\s+/).filter(word => word);
  found = words.length ? boxes.filter(box => words.every(word => box.words.includes(word))) : [];
  next = 0;
  const before = hits;
  hits = new Set(found);
  const mark = (box, on) => { for (const part of [box.drawn, box.listed]) if (part) part.classList.toggle('found', on); };
  for (const box of before) if (!hits.has(box)) mark(box, false);
  for (const box of hits) if (!before.has(box)) mark(box, true);
  document.body.classList.toggle('searching', words.length > 0);
  document.getElementById('matches').textContent = words.length ? `${found.length} found` : '';
}
search.addEventListener('input', find);
search.addEventListener('keydown', event => {
  if (event.key !== 'Enter' || !found.length) return;
  choose(found[next % found.length], true);
  show(found[next % found.length]);
  ++next;
});
window.addEventListener('keydown', event => { if (event.key === 'f' && event.target !== search) fit(); });

// ---- The page

const title = data.title || 'Placed graph';
document.title = title;
document.getElementById('title').textContent = title;
const legend = document.getElementById('legend');
for (const [provider, colour] of colours) {
  html('span', legend, `${provider}: ${counts.get(provider)}`).style.setProperty('--colour', colour);
}
for (const [device, bytes] of Object.entries(data.arena_bytes)) html('small', legend, `${device} arena ${bytesText(bytes)}`);
layOut();
drawEdges();
for (const box of boxes) {
  drawBox(box);
  if (box.kind === 'node') listBox(box);
}
data.copies.forEach(drawCopy);
drawMarks();
document.getElementById('copy-count').textContent = data.copies.length;
document.getElementById('node-count').textContent = data.nodes.length;
if (!data.copies.length) {
  html('p', copyList, data.planned ? 'None: no value changes devices.' : 'Known once shapes are: give sizes with --dim.');
}
fit();
placeNow();
document.body.dataset.ready = 'true';
