#include "exporter/services.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "exporter/intern.h"
#include "exporter/jsontext.h"
#include "exporter/labels.h"

static const char service_name[] = "service_name";
static const char other[] = "(other)";

/* ---- names ---------------------------------------------------------------------------------- */

int services_names_init(struct services_names *n, const struct export_batch *b)
{
	return labels_services(b, &n->of, &n->mem);
}

void services_names_fini(struct services_names *n)
{
	free(n->of);
	free(n->mem);
	*n = (struct services_names){};
}

static bool is_text(const struct export_string *s, const char *text)
{
	return s->len == strlen(text) && !memcmp(s->text, text, s->len);
}

bool services_names_are(const struct services_names *n, uint32_t subject, const char *name)
{
	return is_text(&n->of[subject], name);
}

/* ---- sums ----------------------------------------------------------------------------------- */

struct service {
	char *name;
	uint32_t len;
	uint64_t nsamples, nanoseconds, nprocesses;
};

struct process {
	uint64_t id;
	uint32_t pid, service;
	uint64_t nsamples, nanoseconds;
	struct bufw about; /* `"executable":...,"labels":{...}`, JSON */
};

struct services {
	uint64_t seed;
	struct service *services;
	struct process *processes;
	uint32_t services_cap, processes_cap;
	struct intern service_set, process_set;
	uint64_t nsamples, nanoseconds;
	size_t about_bytes;
};

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - MIN(b, (uint64_t)INT64_MAX) ? INT64_MAX : a + b;
}

int services_new(struct services **ret)
{
	struct services *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	if (getrandom(&s->seed, sizeof(s->seed), GRND_NONBLOCK) != (ssize_t)sizeof(s->seed))
		s->seed = 0;
	*ret = s;
	return 0;
}

struct services *services_free(struct services *s)
{
	if (!s)
		return NULL;
	for (uint32_t i = 0; i < s->service_set.n; i++)
		free(s->services[i].name);
	for (uint32_t i = 0; i < s->process_set.n; i++)
		bufw_fini(&s->processes[i].about);
	free(s->services);
	free(s->processes);
	intern_fini(&s->service_set);
	intern_fini(&s->process_set);
	free(s);
	return NULL;
}

static bool services_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct service *x = &((const struct services *)arg)->services[a];
	const struct service *y = &((const struct services *)arg)->services[b];

	return x->len == y->len && !memcmp(x->name, y->name, x->len);
}

/* What is new past the limit is `(other)`, which may be one more. */
static int put_service(struct services *s, const struct export_string *name, uint32_t *ret)
{
	static const struct export_string rest = { other, sizeof(other) - 1 };
	uint32_t n = s->service_set.n;
	CLEANUP_FREE char *copy = NULL;
	uint64_t hash = XXH3_64bits_withSeed(name->text, name->len, s->seed);
	int err = intern_reserve(&s->services, n, &s->services_cap, sizeof(*s->services));

	if (err)
		return err;
	s->services[n] = (struct service){ .name = (char *)(uintptr_t)name->text, .len = name->len };
	if (intern_find(&s->service_set, hash, n, services_equal, s, ret))
		return 0;
	if (n >= SERVICES_MAX && name->text != other)
		return put_service(s, &rest, ret);
	copy = malloc(name->len + 1ull);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, name->text, name->len);
	s->services[n].name = copy;
	err = intern_put(&s->service_set, hash, n, services_equal, s, ret);
	if (!err)
		(void)TAKE(copy);
	return err;
}

static bool processes_equal(const void *arg, uint32_t a, uint32_t b)
{
	const struct process *x = &((const struct services *)arg)->processes[a];
	const struct process *y = &((const struct services *)arg)->processes[b];

	return x->id == y->id && x->pid == y->pid && x->service == y->service;
}

static int put_label(struct bufw *w, const struct export_string *name, const struct export_string *value)
{
	int err;

	bufw_printf(w, ",");
	err = jsontext_put(w, name->text, name->len);
	bufw_printf(w, ":");
	return err ? err : jsontext_put(w, value->text, value->len);
}

/* Text, since a tree of JSON values takes several times its bytes. */
static int describe(struct bufw *w, const struct export_batch *b, const struct export_subject *subject,
		    const struct export_string *service)
{
	const struct export_string *exe = &b->strings[subject->executable];
	int err;

	bufw_printf(w, "\"executable\":");
	err = jsontext_put(w, exe->text, exe->len);
	bufw_printf(w, ",\"labels\":{\"%s\":", service_name);
	if (!err)
		err = jsontext_put(w, service->text, service->len);
	for (uint32_t i = 0; i < subject->npairs && !err; i++) {
		const struct export_pair *p = &b->pairs[subject->first_pair + i];

		if (!is_text(&b->strings[p->name], service_name))
			err = put_label(w, &b->strings[p->name], &b->strings[p->value]);
	}
	bufw_printf(w, "}");
	return err ? err : bufw_end(w);
}

enum { NO_PROCESS = UINT32_MAX }; /* too many: it is counted, but not shown */

static int put_process(struct services *s, const struct export_batch *b, uint32_t subject,
		       const struct export_string *name, uint32_t service, uint32_t *ret)
{
	const struct export_subject *u = &b->subjects[subject];
	CLEANUP(bufw_fini) struct bufw about = {};
	uint32_t n = s->process_set.n;
	uint64_t key[] = { u->id, (uint64_t)u->pid << 32 | service };
	uint64_t hash = XXH3_64bits_withSeed(key, sizeof(key), s->seed);
	int err;

	err = intern_reserve(&s->processes, n, &s->processes_cap, sizeof(*s->processes));
	if (err)
		return err;
	s->processes[n] = (struct process){ .id = u->id, .pid = u->pid, .service = service };
	if (intern_find(&s->process_set, hash, n, processes_equal, s, ret))
		return 0;
	s->services[service].nprocesses++;
	if (n >= SERVICES_PROCESSES_MAX || s->about_bytes > SERVICES_ABOUT_BYTES) {
		*ret = NO_PROCESS;
		return 0;
	}
	err = describe(&about, b, u, name);
	if (!err)
		err = intern_put(&s->process_set, hash, n, processes_equal, s, ret);
	if (err)
		return err;
	s->about_bytes += about.cap;
	s->processes[n].about = about;
	about = (struct bufw){};
	return 0;
}

/* Where a subject of the batch is counted, once that is known. */
struct place {
	bool is_known;
	uint32_t service, process;
};

static int find_place(struct services *s, const struct export_batch *b, uint32_t subject,
		      const struct export_string *name, struct place *place)
{
	int err;

	if (place->is_known)
		return 0;
	err = put_service(s, name, &place->service);
	if (!err)
		err = put_process(s, b, subject, name, place->service, &place->process);
	place->is_known = !err;
	return err;
}

int services_add(struct services *s, const struct export_batch *b)
{
	CLEANUP(services_names_fini) struct services_names names = {};
	CLEANUP_FREE struct place *places = calloc(MAX(b->nsubjects, 1u), sizeof(*places));
	int err = places ? services_names_init(&names, b) : -ENOMEM;

	for (uint32_t i = 0; i < b->nsamples && !err; i++) {
		const struct export_sample *sample = &b->samples[i];
		struct place *place = &places[sample->subject];
		struct service *service;

		err = find_place(s, b, sample->subject, &names.of[sample->subject], place);
		if (err)
			break;
		service = &s->services[place->service];
		service->nsamples = add(service->nsamples, sample->count);
		service->nanoseconds = add(service->nanoseconds, sample->nanoseconds);
		s->nsamples = add(s->nsamples, sample->count);
		s->nanoseconds = add(s->nanoseconds, sample->nanoseconds);
		if (place->process != NO_PROCESS) {
			struct process *p = &s->processes[place->process];

			p->nsamples = add(p->nsamples, sample->count);
			p->nanoseconds = add(p->nanoseconds, sample->nanoseconds);
		}
	}
	return err;
}

uint64_t services_nsamples(const struct services *s)
{
	return s->nsamples;
}

uint64_t services_nanoseconds(const struct services *s)
{
	return s->nanoseconds;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static int services_by_weight(const void *a, const void *b, void *arg)
{
	const struct services *s = arg;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct service *x = &s->services[i], *y = &s->services[j];
	int cmp;

	if (x->nanoseconds != y->nanoseconds)
		return x->nanoseconds < y->nanoseconds ? 1 : -1;
	cmp = memcmp(x->name, y->name, MIN(x->len, y->len));
	return cmp ? cmp : (x->len > y->len) - (x->len < y->len);
}

/* Service by service, the busiest of each first. */
static int processes_by_weight(const void *a, const void *b, void *arg)
{
	const struct services *s = arg;
	const struct process *x = &s->processes[*(const uint32_t *)a];
	const struct process *y = &s->processes[*(const uint32_t *)b];

	if (x->service != y->service)
		return x->service < y->service ? -1 : 1;
	if (x->nanoseconds != y->nanoseconds)
		return x->nanoseconds < y->nanoseconds ? 1 : -1;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

static void put_processes(struct bufw *w, const struct services *s, const uint32_t *order, uint32_t service)
{
	uint32_t low = 0, high = s->process_set.n;

	while (low < high) { /* the first of the service */
		uint32_t middle = low + (high - low) / 2;

		if (s->processes[order[middle]].service < service)
			low = middle + 1;
		else
			high = middle;
	}
	for (uint32_t i = low; i < s->process_set.n && i - low < SERVICES_SHOWN_MAX; i++) {
		const struct process *p = &s->processes[order[i]];

		if (p->service != service)
			break;
		bufw_printf(w, "%s{\"pid\":%" PRIu32 ",\"samples\":%" PRIu64 ",\"cpu_seconds\":%.9f,",
			    i > low ? "," : "", p->pid, p->nsamples, clock_seconds(p->nanoseconds));
		bufw_bytes(w, p->about.data, p->about.len);
		bufw_printf(w, "}");
	}
}

static int put_service_json(struct bufw *w, const struct services *s, const uint32_t *order, uint32_t service)
{
	const struct service *v = &s->services[service];
	int err;

	bufw_printf(w, "{\"name\":");
	err = jsontext_put(w, v->name, v->len);
	bufw_printf(w, ",\"samples\":%" PRIu64 ",\"cpu_seconds\":%.9f,\"nprocesses\":%" PRIu64 ",\"processes\":[",
		    v->nsamples, clock_seconds(v->nanoseconds), v->nprocesses);
	put_processes(w, s, order, service);
	bufw_printf(w, "]}");
	return err;
}

int services_write(const struct services *s, struct bufw *w)
{
	uint32_t nservices = s->service_set.n, nprocesses = s->process_set.n;
	CLEANUP_FREE uint32_t *order = calloc(MAX(nservices, 1u), sizeof(*order));
	CLEANUP_FREE uint32_t *processes = calloc(MAX(nprocesses, 1u), sizeof(*processes));
	int err = order && processes ? 0 : -ENOMEM;

	if (err)
		return err;
	for (uint32_t i = 0; i < nservices; i++)
		order[i] = i;
	for (uint32_t i = 0; i < nprocesses; i++)
		processes[i] = i;
	qsort_r(order, nservices, sizeof(*order), services_by_weight, (void *)s);
	qsort_r(processes, nprocesses, sizeof(*processes), processes_by_weight, (void *)s);
	bufw_printf(w, "[");
	for (uint32_t i = 0; i < nservices && !err; i++) {
		if (i)
			bufw_printf(w, ",");
		err = put_service_json(w, s, processes, order[i]);
	}
	bufw_printf(w, "]");
	return err ? err : bufw_end(w);
}
