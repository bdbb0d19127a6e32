/*
 * Whatever a control group is called: ids are what ids look like, units are services, and the labels
 * that are made of it are text that can be shown and sent.
 */
#include <stdio.h>
#include <string.h>

#include "exporter/cgroup.h"
#include "exporter/labels.h"
#include "exporter/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "broken: %s\n", what);
	abort();
}

static void check_facts(const char *lines)
{
	struct cgroup_facts f;
	char name[CGROUP_UNIT_MAX];
	size_t len;

	cgroup_parse(lines, &f);
	require(strspn(f.container_id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-") ==
			strlen(f.container_id),
		"an id is plain");
	len = strlen(f.pod_uid);
	require(!len || len == 32 || len == 36, "the length of a pod's uid");
	require(strspn(f.pod_uid, "0123456789abcdef-") == len, "a pod's uid is hexadecimal");
	len = strlen(f.service_unit);
	require(!len || (len > 8 && !strcmp(f.service_unit + len - 8, ".service")), "a unit is a service");
	require(!f.container_path == !f.container_id[0] && !f.pod_path == !f.pod_uid[0] && !f.unit_path == !len,
		"what is known has a source");
	cgroup_unit_name(f.service_unit, name, sizeof(name));
	require(strlen(name) <= len, "a name is not longer than its unit");
}

static void check_labels(const char *text)
{
	/* The same bytes as all that a process can choose. */
	struct export_facts f = { .executable = text, .comm = text, .cgroups = text };
	CLEANUP_FREE void *mem = NULL;
	struct export_labels l;
	char shown[4096];
	bool has_service = false;

	require(!labels_make(&f, NULL, &l, &mem), "labels can be made");
	require(l.keep_one_in == 1 && l.nlabels && l.nlabels <= EXPORT_PAIRS_MAX, "a verdict, and some labels");
	for (uint32_t i = 0; i < l.nlabels; i++) {
		const struct export_label *x = &l.labels[i];

		require(!i || strcmp(l.labels[i - 1].name, x->name) < 0, "labels are sorted");
		require(x->value[0] && strlen(x->value) <= EXPORT_LABEL_MAX, "a value of a good length");
		utf8_clean(x->value, strlen(x->value), shown, sizeof(shown));
		require(!strcmp(x->value, shown), "a value can be shown");
		utf8_clean(x->source, strlen(x->source), shown, sizeof(shown));
		require(!strcmp(x->source, shown), "a source can be shown");
		if (strcmp(x->name, "service_name") != 0)
			continue;
		has_service = true;
		labels_sanitize(x->value, strlen(x->value), shown, sizeof(shown));
		require(!strcmp(x->value, shown), "a service has a plain name");
	}
	require(has_service, "service_name is always there");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_FREE char *text = strndup((const char *)data, size);

	require(text, "memory");
	check_facts(text);
	check_labels(text);
	return 0;
}
