// A flame graph on a canvas, root at the top. It draws what can be seen, so that its cost follows the
// width of the screen and not the number of stacks: a subtree narrower than half a pixel is one rectangle.
//
// Nodes come in preorder as columns (see api.js): parent, frame, self, total. In preorder a subtree is a
// run of nodes, so `end` (the node after it) is all that is needed to skip one.

const ROW = 18;
const FONT = '12px system-ui, sans-serif';
const PADDING = 4;
const MIN_TEXT = 24;
const MIN_WIDTH = 0.5;

export class Tree {
	constructor(columns) {
		const n = columns.parent.length;

		this.count = n;
		this.parent = Int32Array.from(columns.parent);
		this.frame = Int32Array.from(columns.frame);
		this.self = Float64Array.from(columns.self);
		this.total = Float64Array.from(columns.total);
		this.depth = new Int32Array(n);
		this.start = new Float64Array(n); // of the root's total
		this.end = new Int32Array(n).fill(n);
		this.deepest = new Int32Array(n); // depth of the deepest node below each
		this.maxDepth = 0;
		const filled = new Float64Array(n); // how much of a node its children have taken
		const open = []; // the path to the node at hand

		for (let i = 0; i < n; i++) {
			while (open.length && open[open.length - 1] !== this.parent[i]) this.end[open.pop()] = i;
			if (i > 0) {
				const p = this.parent[i];
				this.depth[i] = this.depth[p] + 1;
				this.start[i] = this.start[p] + filled[p];
				filled[p] += this.total[i];
			}
			this.maxDepth = Math.max(this.maxDepth, this.depth[i]);
			open.push(i);
		}
		for (let i = n - 1; i >= 0; i--) { // children come after their parents
			this.deepest[i] = Math.max(this.deepest[i], this.depth[i]);
			if (i > 0) this.deepest[this.parent[i]] = Math.max(this.deepest[this.parent[i]], this.deepest[i]);
		}
	}

	path(node) {
		const nodes = [];
		for (let i = node; i >= 0; i = this.parent[i]) nodes.unshift(i);
		return nodes;
	}

	// What the matching frames take together; one inside another counts once.
	sumMatched(matches) {
		let sum = 0;
		for (let i = 0; i < this.count; ) {
			const hit = this.frame[i] >= 0 && matches[this.frame[i]];
			if (hit) sum += this.total[i];
			i = hit ? this.end[i] : i + 1;
		}
		return sum;
	}
}

// The same module has the same hue in every view; the kernel is cool, programs are warm.
function hue(module) {
	let hash = 2166136261;
	for (let i = 0; i < module.length; i++) hash = Math.imul(hash ^ module.charCodeAt(i), 16777619);
	const spread = (hash >>> 0) % 1000 / 1000;
	return module.startsWith('[') ? 190 + spread * 50 : 8 + spread * 50;
}

export class FlameGraph {
	// box scrolls, canvas stays in view, spacer gives the height; callbacks: onZoom(node), onHover(node or -1, event)
	constructor(box, canvas, spacer, { onZoom, onHover }) {
		Object.assign(this, { box, canvas, spacer, onZoom, onHover });
		this.tree = new Tree({ parent: [], frame: [], self: [], total: [] });
		this.frames = [];
		this.matches = null;
		this.zoom = 0;
		this.hover = -1;
		this.rects = []; // what was drawn: [x, y, width, node]
		this.colours = [];
		this.dark = matchMedia('(prefers-color-scheme: dark)');
		this.dark.addEventListener('change', () => this.recolour());
		new ResizeObserver(() => this.draw()).observe(box);
		box.addEventListener('scroll', () => this.draw());
		canvas.addEventListener('click', (e) => this.click(e));
		canvas.addEventListener('mousemove', (e) => this.move(e));
		canvas.addEventListener('mouseleave', (e) => this.setHover(-1, e));
	}

	// frames: [{name, module}]
	show(tree, frames) {
		const before = this.zoom > 0 ? this.tree.path(this.zoom).map((i) => this.key(i)) : [];

		this.tree = tree;
		this.frames = frames;
		this.matches = null;
		this.hover = -1;
		this.zoom = this.find(before);
		this.recolour();
	}

	key(node) {
		const f = this.frames[this.tree.frame[node]];
		return f ? f.module + '\n' + f.name : '';
	}

	// The node at the end of a path of keys; as far as it goes.
	find(keys) {
		let at = 0;
		for (const key of keys.slice(1)) {
			let next = -1;
			for (let i = at + 1; i < (this.tree.end[at] ?? 0); i = this.tree.end[i]) {
				if (this.key(i) === key) {
					next = i;
					break;
				}
			}
			if (next < 0) return 0;
			at = next;
		}
		return at;
	}

	recolour() {
		const light = this.dark.matches ? 36 : 70;
		this.colours = this.frames.map((f) => {
			if (f.name.startsWith('[') || f.name === '(other)') return `hsl(220 6% ${light}%)`;
			return `hsl(${hue(f.module).toFixed(0)} 72% ${light}%)`;
		});
		const style = getComputedStyle(document.documentElement);
		this.ink = style.getPropertyValue('--ink');
		this.paper = style.getPropertyValue('--paper');
		this.mark = style.getPropertyValue('--mark');
		this.draw();
	}

	setMatches(matches) {
		this.matches = matches;
		this.draw();
	}

	zoomTo(node) {
		this.zoom = node;
		this.box.scrollTop = 0;
		this.draw();
		this.onZoom(node);
	}

	// Rows that the present view has.
	rows() {
		return (this.tree.deepest[this.zoom] ?? 0) + 1;
	}

	draw() {
		cancelAnimationFrame(this.pending);
		this.pending = requestAnimationFrame(() => this.drawNow());
	}

	drawNow() {
		const { box, canvas, tree } = this;
		const width = box.clientWidth, height = box.clientHeight, scale = devicePixelRatio || 1;

		canvas.width = Math.max(1, Math.round(width * scale));
		canvas.height = Math.max(1, Math.round(height * scale));
		canvas.style.width = width + 'px';
		canvas.style.height = height + 'px';
		this.spacer.style.height = Math.max(0, this.rows() * ROW - height) + 'px';
		this.rects = [];
		this.context = canvas.getContext('2d');
		this.context.scale(scale, scale);
		this.context.font = FONT;
		this.context.textBaseline = 'middle';
		this.context.clearRect(0, 0, width, height);
		if (!tree.count || !(tree.total[0] > 0)) return;
		this.drawTree(width, height);
	}

	drawTree(width, height) {
		const { tree, zoom } = this;
		const from = tree.start[zoom], unit = width / tree.total[zoom], top = this.box.scrollTop;

		for (const i of tree.path(zoom)) this.rect(i, 0, width, tree.depth[i] * ROW - top, height);
		for (let i = zoom + 1; i < tree.end[zoom]; ) {
			const w = tree.total[i] * unit;
			this.rect(i, (tree.start[i] - from) * unit, w, tree.depth[i] * ROW - top, height);
			i = w < MIN_WIDTH || tree.depth[i] * ROW - top > height ? tree.end[i] : i + 1;
		}
	}

	rect(node, x, w, y, height) {
		const { context: c, tree } = this, frame = tree.frame[node];

		if (y + ROW < 0 || y > height) return;
		const matched = this.matches && frame >= 0 && this.matches[frame];
		c.globalAlpha = this.matches && !matched ? 0.35 : 1;
		c.fillStyle = matched ? this.mark : frame < 0 ? 'hsl(220 6% 60%)' : this.colours[frame];
		c.fillRect(x, y, Math.max(w - (w > 3 ? 0.6 : 0), MIN_WIDTH), ROW - 1);
		c.globalAlpha = 1;
		if (node === this.hover) {
			c.strokeStyle = this.ink;
			c.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), ROW - 2);
		}
		this.rects.push([x, y, w, node]);
		if (w < MIN_TEXT) return;
		c.fillStyle = matched ? this.paper : this.ink;
		c.fillText(this.fit(frame < 0 ? 'total' : this.frames[frame].name, w - 2 * PADDING), x + PADDING, y + ROW / 2);
	}

	// The text, shortened to the width.
	fit(text, width) {
		const { context: c } = this;
		const cut = text.length > 512 ? text.slice(0, 512) : text;

		if (c.measureText(cut).width <= width) return cut;
		let low = 0, high = cut.length;
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (c.measureText(cut.slice(0, middle) + '…').width <= width) low = middle;
			else high = middle - 1;
		}
		return low > 0 ? cut.slice(0, low) + '…' : '';
	}

	nodeAt(event) {
		const bounds = this.canvas.getBoundingClientRect();
		const x = event.clientX - bounds.left, y = event.clientY - bounds.top;

		// Later ones lie on top of narrower neighbours.
		for (let i = this.rects.length - 1; i >= 0; i--) {
			const [rx, ry, rw, node] = this.rects[i];
			if (x >= rx && x < rx + Math.max(rw, 1) && y >= ry && y < ry + ROW) return node;
		}
		return -1;
	}

	click(event) {
		const node = this.nodeAt(event);
		if (node >= 0) this.zoomTo(node);
	}

	move(event) {
		this.setHover(this.nodeAt(event), event);
	}

	setHover(node, event) {
		const changed = node !== this.hover;
		this.hover = node;
		if (changed) this.draw();
		this.onHover(node, event);
	}
}
