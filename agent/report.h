/*
 * report - what the daemon tells of itself: EXPORT_STATUS for API and metrics, and lines for people.
 *
 * May touch: /proc of flamed's own processes, the exporter's channel. Never: change what it tells of.
 */
#ifndef AGENT_REPORT_H
#define AGENT_REPORT_H

#include "agent/engine.h"
#include "agent/expclient.h"
#include "agent/settings.h"
#include "agent/timeline.h"

struct report_source {
	const struct engine *engine;
	const struct settings *settings;
	struct expclient *exporter;
	uint64_t start_wall_ns;
	uint64_t missing_caps;	/* of rights_leave_root() */
	uint64_t windows[TIMELINE_END_COUNT];	/* by why they ended */
};

struct report;

MUST_USE int report_new(struct report **ret);
struct report *report_free(struct report *r);
DEFINE_CLEANUP(struct report *, report_free);

/* Once a second. What the exporter is too busy to hear is not said. */
MUST_USE int report_send(struct report *r, const struct report_source *src);
/* The line of a terminal, rewritten each second. */
void report_progress(const struct report_source *src);
/*
 * Log lines: `text windows=N seen=N samples=N complete=P% REASON=N...`, where seen is the sum of
 * samples and reasons; and `delivery endpoint='NAME' samples=N FATE=N... pending=N`, one a sink, where
 * samples is the sum of all that follows.
 */
void report_log(const struct report_source *src, const char *text);
void report_log_short(const struct report_source *src, const char *text);	/* the first of these lines */

#endif
