// The daemon's API (docs/api.md), relative to the page: its address holds the token.

async function get(path, parameters) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(parameters)) {
		if (value !== undefined && value !== '') query.set(name, value);
	}
	const reply = await fetch(`api/v1/${path}?${query}`, { cache: 'no-store' });
	if (reply.status === 401) throw new Error('The token in the address is not valid any more: flamed was restarted and has printed a new one.');
	const body = await reply.json();
	if (!reply.ok) throw new Error(body.error ?? `${reply.status} ${reply.statusText}`);
	return body;
}

export const getStatus = () => get('status', {});
export const getServices = (from) => get('services', { from });
export const getFlame = (from, service) => get('query', { from, service });
