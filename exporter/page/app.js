// The page: asks the API, and shows what it says. What is looked at stands in the address after `#`.

import { getFlame, getServices, getStatus } from './api.js';
import { FlameGraph, Tree } from './flame.js';
import { TopTable, percent, seconds, showProcesses, showServices } from './tables.js';

const LIVE_MIN_S = 5;
const $ = (id) => document.getElementById(id);
const state = { service: '', range: '300', q: '' };
let shown = null; // {tree, frames, lowered}
let turn = 0; // answers that were overtaken are dropped

const graph = new FlameGraph($('flame-box'), $('flame'), $('flame-height'), {
	onZoom: (node) => { $('reset').hidden = node <= 0; },
	onHover: showTip,
});
const table = new TopTable($('top'), (row) => search(row.name));

globalThis.flamed = { graph }; // for the debugger's console, and the page's test

function say(text) {
	$('message').textContent = text;
	$('message').hidden = !text;
}

// ---- what is looked at ----

function readAddress() {
	const hash = new URLSearchParams(location.hash.slice(1));
	for (const name of Object.keys(state)) if (hash.has(name)) state[name] = hash.get(name);
	if (![...$('range').options].some((o) => o.value === state.range)) state.range = '300';
	$('range').value = state.range;
	$('search').value = state.q;
}

function writeAddress() {
	const hash = new URLSearchParams();
	if (state.service) hash.set('service', state.service);
	if (state.range !== '300') hash.set('range', state.range);
	if (state.q) hash.set('q', state.q);
	history.replaceState(null, '', '#' + hash);
}

// ---- showing ----

function showTip(node, event) {
	const tip = $('tip');

	tip.hidden = node < 0 || !shown;
	if (tip.hidden) return;
	const { tree, frames } = shown, frame = frames[tree.frame[node]];
	const lines = frame ? [frame.name, frame.module] : ['total'];
	lines.push(`${seconds(tree.total[node])} (${percent(tree.total[node], tree.total[0])}), self ${seconds(tree.self[node])}`);
	tip.textContent = lines.filter(Boolean).join('\n');
	tip.style.left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8) + 'px';
	tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + 'px';
}

function applySearch() {
	if (!shown) return;
	const wanted = state.q.trim().toLowerCase();
	const matches = wanted ? shown.lowered.map((text) => text.includes(wanted)) : null;
	const sum = matches ? shown.tree.sumMatched(matches) : 0;

	graph.setMatches(matches);
	table.setMatches(matches);
	$('matched').textContent = matches ? `${percent(sum, shown.tree.total[0])} matched` : '';
}

function search(text) {
	state.q = text;
	$('search').value = text;
	writeAddress();
	applySearch();
}

function showFlame(query) {
	const frames = query.frames.map(([name, module]) => ({ name: query.names[name], module: query.modules[module] }));
	const tree = new Tree(query.nodes);

	shown = { tree, frames, lowered: frames.map((f) => `${f.name}\n${f.module}`.toLowerCase()) };
	graph.show(tree, frames);
	$('flame').dataset.service = query.service;
	table.show(query.top.map(([frame, self, total]) => ({ ...frames[frame], frame, self, total })), tree.total[0] ?? 0);
	applySearch();
	$('reset').hidden = graph.zoom <= 0;
	const length = query.to - query.from;
	$('summary').textContent = query.samples
		? `${query.samples} samples, ${seconds(query.cpu_seconds * 1e9)} of CPU time in ${length.toFixed(0)} s` : '';
}

async function refresh() {
	const mine = ++turn;

	try {
		const from = '-' + state.range;
		const [services, query] = await Promise.all([getServices(from), getFlame(from, state.service)]);
		if (mine !== turn) return;
		showServices($('services'), services.services, services.cpu_seconds, state.service, pickService);
		showProcesses($('processes'), services.services.filter((s) => !state.service || s.name === state.service));
		showFlame(query);
		say(services.samples ? (query.samples ? '' : `No samples of ${state.service} in this time.`)
			: 'The first window is being taken: the flame graph appears here in some seconds.');
	} catch (error) {
		if (mine === turn) say(error instanceof TypeError ? 'flamed does not answer: is it still running?' : error.message);
	}
}

function pickService(name) {
	state.service = name;
	graph.zoom = 0;
	writeAddress();
	refresh();
}

// ---- controls ----

function selectTab(name) {
	for (const tab of ['top', 'processes']) {
		$(`tab-${tab}`).setAttribute('aria-selected', String(tab === name));
		$(`${tab}-box`).hidden = tab !== name;
	}
}

$('range').addEventListener('change', () => { state.range = $('range').value; writeAddress(); refresh(); });
$('search').addEventListener('input', () => search($('search').value));
$('reset').addEventListener('click', () => graph.zoomTo(0));
$('tab-top').addEventListener('click', () => selectTab('top'));
$('tab-processes').addEventListener('click', () => selectTab('processes'));
addEventListener('keydown', (e) => {
	if (e.key === 'Escape' && e.target !== $('search')) graph.zoomTo(0);
	if (e.key === '/' && e.target !== $('search')) { e.preventDefault(); $('search').focus(); }
});
addEventListener('hashchange', () => { readAddress(); refresh(); });

const isLive = () => $('live').checked && document.visibilityState === 'visible';

// A window brings something new; a page that nobody looks at, or that is not live, asks for nothing.
async function live() {
	let wait = LIVE_MIN_S;

	if (isLive()) {
		try {
			const status = await getStatus();
			wait = Math.max(wait, status.recent?.windows ? status.window_seconds : 1);
			$('host').textContent = status.hostname ?? '';
			document.title = `flamed ${status.hostname ?? ''}`.trim();
		} catch {
			// refresh() says what is wrong
		}
	}
	setTimeout(async () => {
		if (isLive()) await refresh();
		live();
	}, wait * 1000);
}

document.addEventListener('visibilitychange', () => { if (isLive()) refresh(); });

readAddress();
refresh();
live();
