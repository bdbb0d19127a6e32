#include "agent/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { DO_GO = 'g', DO_TERMINATE = 't', DO_KILL = 'k' };

/* What the supervisor reports. */
enum report_type { REPORT_PID, REPORT_STARTED, REPORT_ENDED };
struct report {
	int32_t type;
	int32_t value;	/* pid; errno of the exec or 0; exit status */
};

static void tell(int fd, enum report_type type, int value)
{
	struct report r = { .type = (int32_t)type, .value = value };

	if (write(fd, &r, sizeof(r)) != sizeof(r))
		_exit(1); /* nobody listens any more */
}

/*
 * What signals do to the supervisor: the terminal's are for the command, whose end is what ends us, a
 * pipe that nobody reads any more is an error of write(2), and children wait to be reaped.
 */
static const struct {
	int signo;
	void (*handler)(int);
} signals[] = { { SIGINT, SIG_IGN },  { SIGQUIT, SIG_IGN }, { SIGTERM, SIG_IGN },
		{ SIGHUP, SIG_IGN },  { SIGPIPE, SIG_IGN }, { SIGCHLD, SIG_DFL } };

static void run_child(int go, int failure, const struct sigaction *before, char *const argv[])
{
	char byte;
	int err;

	/* As whoever called us wants it: in the background of a shell SIGINT is ignored, for example. */
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		(void)sigaction(signals[i].signo, &before[i], NULL);
	if (read(go, &byte, 1) != 1)
		_exit(1); /* called off */
	execvp(argv[0], argv);
	err = errno;
	if (write(failure, &err, sizeof(err)) != sizeof(err))
		_exit(1);
	_exit(err == ENOENT ? 127 : 126);
}

static int exit_status(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
}

/* One order of the agent's; false when the agent is gone. */
static bool obey(int control, int go, int failure, int report, pid_t child)
{
	char order;
	int err = 0;

	if (read(control, &order, 1) != 1)
		return false;
	if (order == DO_TERMINATE) {
		kill(child, SIGTERM);
		kill(child, SIGCONT);
	} else if (order == DO_KILL) {
		kill(child, SIGKILL);
	} else if (write(go, "g", 1) == 1) {
		/* The exec closes the pipe; a failed one sends its errno first. */
		if (read(failure, &err, sizeof(err)) != sizeof(err))
			err = 0;
		tell(report, REPORT_STARTED, err);
	}
	return true;
}

static void supervise(int control, int report, char *const argv[])
{
	int go[2], failure[2];
	struct sigaction before[ARRAY_SIZE(signals)];
	struct pollfd waits[2];
	int child_fd;
	pid_t child;

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction ours = { .sa_handler = signals[i].handler };

		(void)sigaction(signals[i].signo, &ours, &before[i]);
	}
	if (pipe2(go, O_CLOEXEC) || pipe2(failure, O_CLOEXEC))
		_exit(1);
	child = fork();
	if (child < 0)
		_exit(1);
	if (child == 0) {
		close(go[1]);
		close(failure[0]);
		close(control);
		close(report);
		run_child(go[0], failure[1], before, argv);
	}
	close(go[0]);
	close(failure[1]);
	child_fd = pidfd_open(child, 0);
	if (child_fd < 0)
		_exit(1); /* calls the child off */
	tell(report, REPORT_PID, child);
	waits[0] = (struct pollfd){ .fd = child_fd, .events = POLLIN };
	waits[1] = (struct pollfd){ .fd = control, .events = POLLIN };
	for (;;) {
		siginfo_t info = { 0 };

		if (poll(waits, 2, -1) < 0)
			continue;
		if (waits[1].revents && !obey(control, go[1], failure[0], report, child))
			waits[1].fd = -1; /* the agent is gone: the command is left alone */
		if (waits[0].revents && waitid(P_PID, (id_t)child, &info, WEXITED) == 0) {
			tell(report, REPORT_ENDED, exit_status(&info));
			_exit(0);
		}
		if (waits[1].fd < 0)
			_exit(0);
	}
}

static int next_report(struct command *c, enum report_type type, int *ret_value)
{
	struct report r;
	ssize_t n;

	do {
		n = read(c->report, &r, sizeof(r));
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(r) || r.type != (int32_t)type)
		return -EPIPE;
	*ret_value = r.value;
	return 0;
}

int command_prepare(struct command *c, char *const argv[])
{
	int control[2], report[2];
	int err, pid;

	/* A socket, because a write to it need not raise SIGPIPE. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control))
		return -errno;
	if (pipe2(report, O_CLOEXEC)) {
		err = -errno;
		close(control[0]);
		close(control[1]);
		return err;
	}
	c->supervisor = fork();
	if (c->supervisor == 0) {
		close(control[1]);
		close(report[0]);
		supervise(control[0], report[1], argv);
	}
	err = c->supervisor < 0 ? -errno : 0;
	close(control[0]);
	close(report[1]);
	c->control = control[1];
	c->report = report[0];
	if (!err)
		err = next_report(c, REPORT_PID, &pid);
	if (err) {
		command_fini(c);
		return err;
	}
	c->pid = pid;
	return 0;
}

static int order(struct command *c, char what)
{
	return send(c->control, &what, 1, MSG_NOSIGNAL) == 1 ? 0 : -EPIPE;
}

int command_go(struct command *c)
{
	int exec_errno;
	int err;

	if ((err = order(c, DO_GO)) || (err = next_report(c, REPORT_STARTED, &exec_errno)))
		return err;
	return -exec_errno;
}

void command_terminate(struct command *c, bool kill)
{
	if (c->control >= 0 && order(c, kill ? DO_KILL : DO_TERMINATE)) {
		close(c->control);
		c->control = -1;
	}
}

int command_ended(struct command *c, int *ret_status)
{
	struct pollfd p = { .fd = c->report, .events = POLLIN };

	if (poll(&p, 1, 0) != 1)
		return 0;
	if (next_report(c, REPORT_ENDED, ret_status))
		*ret_status = 1; /* the supervisor was killed */
	return 1;
}

void command_fini(struct command *c)
{
	closep(&c->control);
	closep(&c->report);
	*c = (struct command)COMMAND_INIT;
}
