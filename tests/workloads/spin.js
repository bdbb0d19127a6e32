// spin.js [SECONDS] - JavaScript that V8 soon compiles, some of its own library, and garbage.
//
// Expected: a complete native stack through V8's compiled code: _start, __libc_start_main, (its helper),
// main of node.
'use strict';

function leaf(n) {
	let total = 0;
	for (let i = 0; i < n; i++)
		total = (total + (i ^ (i << 7))) | 0;
	return total;
}

function recurse(depth) {
	return depth === 0 ? leaf(2000) : recurse(depth - 1) + 1;
}

function main() {
	const seconds = process.argv.length > 2 ? Number(process.argv[2]) : 1;
	const start = process.cpuUsage();
	let text = '';
	for (;;) {
		for (let i = 0; i < 200; i++)
			recurse(50);
		text = JSON.stringify(JSON.parse(JSON.stringify({ list: Array(200).fill(text.length) })));
		const used = process.cpuUsage(start);
		if (used.user + used.system >= seconds * 1e6)
			return;
	}
}

main();
