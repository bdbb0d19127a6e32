// The two tables below the flame graph, and the list of services beside it. Texts are workloads' own:
// they only ever become text nodes.

export function seconds(ns) {
	const s = ns / 1e9;
	return s >= 100 ? s.toFixed(0) + ' s' : s >= 1 ? s.toFixed(2) + ' s' : (s * 1000).toFixed(s >= 0.01 ? 0 : 1) + ' ms';
}

export function percent(part, whole) {
	return whole > 0 ? (100 * part / whole).toFixed(1) + ' %' : '–';
}

function element(tag, text, className) {
	const e = document.createElement(tag);
	if (text !== undefined) e.textContent = text;
	if (className) e.className = className;
	return e;
}

function row(...cells) {
	const tr = element('tr');
	tr.append(...cells);
	return tr;
}

export class TopTable {
	constructor(table, onPick) {
		this.table = table;
		this.onPick = onPick;
		this.rows = [];
		this.sort = 'self';
		for (const button of table.querySelectorAll('[data-sort]'))
			button.addEventListener('click', () => { this.sort = button.dataset.sort; this.draw(); });
	}

	// rows: [{name, module, frame, self, total}]
	show(rows, whole) {
		this.rows = rows;
		this.whole = whole;
		this.matches = null;
		this.draw();
	}

	setMatches(matches) {
		this.matches = matches;
		this.draw();
	}

	value(ns) {
		return ns > 0 ? `${seconds(ns)} (${percent(ns, this.whole)})` : '–';
	}

	draw() {
		const by = this.sort === 'name' ? (a, b) => a.name.localeCompare(b.name) : (a, b) => b[this.sort] - a[this.sort];
		const sorted = [...this.rows].sort(by);

		for (const th of this.table.querySelectorAll('th')) {
			const sort = th.querySelector('[data-sort]')?.dataset.sort;
			if (sort === this.sort) th.setAttribute('aria-sort', sort === 'name' ? 'ascending' : 'descending');
			else th.removeAttribute('aria-sort');
		}
		this.table.tBodies[0].replaceChildren(...sorted.map((r) => {
			const tr = row(element('td', this.value(r.self), 'number'), element('td', this.value(r.total), 'number'),
				element('td', r.name, 'name'), element('td', r.module.slice(r.module.lastIndexOf('/') + 1)));
			tr.lastChild.title = r.module;
			tr.classList.toggle('matched', Boolean(this.matches?.[r.frame]));
			tr.addEventListener('click', () => this.onPick(r));
			return tr;
		}));
	}
}

export function showProcesses(table, services) {
	const rows = services.flatMap((s) => s.processes);

	rows.sort((a, b) => b.cpu_seconds - a.cpu_seconds);
	table.tBodies[0].replaceChildren(...rows.slice(0, 500).map((p) => row(
		element('td', seconds(p.cpu_seconds * 1e9), 'number'), element('td', p.pid, 'number'), element('td', p.executable),
		element('td', Object.entries(p.labels).map(([name, value]) => `${name}=${value}`).join('  ')))));
}

export function showServices(list, services, whole, current, onPick) {
	const item = (name, label, cpu) => {
		const button = element('button'), li = element('li'), meter = element('meter');
		button.type = 'button';
		button.append(element('span', label, 'name'), element('span', percent(cpu, whole), 'share'), meter);
		button.title = label;
		button.setAttribute('aria-current', String(name === current));
		meter.max = whole || 1;
		meter.value = cpu;
		meter.setAttribute('aria-hidden', 'true');
		button.addEventListener('click', () => onPick(name));
		li.append(button);
		return li;
	};
	list.replaceChildren(item('', 'all services', whole), ...services.map((s) => item(s.name, s.name, s.cpu_seconds)));
}
