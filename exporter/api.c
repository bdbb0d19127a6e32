#include "exporter/api.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exporter/jsontext.h"
#include "exporter/services.h"

enum { OK = 200, BAD_REQUEST = 400, NOT_FOUND = 404, OUT_OF_MEMORY = 500 };

/* ---- parameters ----------------------------------------------------------------------------- */

/* Unix seconds, or negative: seconds before now. */
static bool parse_time(const char *text, uint64_t now_ns, uint64_t *ret)
{
	static const double max = 9e9; /* the year 2255 */
	char *end;
	double value;

	if (!*text || strlen(text) > 24 || text[strspn(text, "-.0123456789")])
		return false;
	value = strtod(text, &end);
	if (*end || !isfinite(value) || value > max || value < -max)
		return false;
	if (*text == '-') {
		uint64_t back = (uint64_t)(-value * (double)NSEC_PER_SEC);

		*ret = back < now_ns ? now_ns - back : 0;
	} else {
		*ret = (uint64_t)(value * (double)NSEC_PER_SEC);
	}
	return true;
}

static const char *parse_range(const struct api_params *p, struct api_range *ret)
{
	uint64_t now = clock_wall_ns();
	struct api_range r = { now - API_DEFAULT_S * NSEC_PER_SEC, now };

	if (p->from && !parse_time(p->from, now, &r.from_ns))
		return "from is unix seconds, or negative: seconds before now";
	if (p->to && !parse_time(p->to, now, &r.to_ns))
		return "to is unix seconds, or negative: seconds before now";
	if (r.from_ns > r.to_ns)
		return "from is after to";
	*ret = r;
	return NULL;
}

static const char *parse_nodes(const char *text, uint32_t *ret)
{
	static const char wrong[] = "nodes is a number from 2 to 131072";
	uint32_t n = 0;

	*ret = API_NODES_DEFAULT;
	if (!text)
		return NULL;
	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '9' || c - text > 5)
			return wrong;
		n = n * 10 + (uint32_t)(*c - '0');
	}
	if (n < 2 || n > API_NODES_MAX)
		return wrong;
	*ret = n;
	return NULL;
}

/* The answer as text, which is let go of. */
static unsigned int say(unsigned int status, json_t *j, struct bufw *ret)
{
	int err = j ? jsontext_dump(j, ret) : -ENOMEM;

	json_decref(j);
	return err ? OUT_OF_MEMORY : status;
}

static unsigned int refuse(unsigned int status, const char *why, struct bufw *ret)
{
	return say(status, json_pack("{s:s}", "error", why), ret);
}

/* ---- services ------------------------------------------------------------------------------- */

static int add_services(void *arg, const struct recent_window *w, const struct export_batch *b)
{
	(void)w;
	return services_add(arg, b);
}

static int services_of(const struct api_view *v, const struct api_range *r, struct bufw *ret)
{
	CLEANUP(services_freep) struct services *s = NULL;
	int err = services_new(&s);

	if (!err)
		err = recent_each(v->recent, r->from_ns, r->to_ns, add_services, s);
	if (err)
		return err;
	bufw_printf(ret, "{\"from\":%.3f,\"to\":%.3f,\"samples\":%" PRIu64 ",\"cpu_seconds\":%.9f,\"services\":",
		    clock_seconds(r->from_ns), clock_seconds(r->to_ns), services_nsamples(s),
		    clock_seconds(services_nanoseconds(s)));
	err = services_write(s, ret);
	bufw_printf(ret, "}");
	return err ? err : bufw_end(ret);
}

/* ---- the three ------------------------------------------------------------------------------ */

unsigned int api_answer(const struct api_view *v, const char *name, const struct api_params *p,
			struct bufw *ret)
{
	struct api_range range;
	uint32_t max_nodes;
	const char *wrong;
	int err;

	if (!strcmp(name, "status"))
		return say(OK, api_status(v), ret);
	if (strcmp(name, "services") && strcmp(name, "query"))
		return refuse(NOT_FOUND, "there are status, services and query", ret);
	wrong = parse_range(p, &range);
	if (!wrong)
		wrong = parse_nodes(p->nodes, &max_nodes);
	if (wrong)
		return refuse(BAD_REQUEST, wrong, ret);
	err = *name == 's' ? services_of(v, &range, ret) :
			     api_query(v, &range, p->service, max_nodes, ret);
	return err ? OUT_OF_MEMORY : OK;
}
