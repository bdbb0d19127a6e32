/* What program.cc's functions inline from another file. */
#ifndef LINES_INLINED_H
#define LINES_INLINED_H

static inline int squared(int n)
{
	return n * n;
}

static inline int cubed(int n)
{
	int square = squared(n);

	if (square > 1000)
		square -= squared(square % 7);
	return square * n;
}

#endif
