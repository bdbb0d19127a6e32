/*
 * alloc_fail - makes the nth allocation of the code under test fail.
 *
 * Link $(ALLOC_FAIL_OBJ) and add $(ALLOC_FAIL_LDFLAGS) to TEST_LDFLAGS_NAME. Only calls from
 * objects of the test program are seen, not those that libraries make inside.
 *
 *	for (long nth = 1; err; nth++) {
 *		alloc_fail_nth(nth);
 *		err = thing_new(&t);
 *		alloc_fail_nth(0);
 *		assert_true(err == 0 || err == -ENOMEM);
 *	}
 */
#ifndef TESTS_UNIT_ALLOC_FAIL_H
#define TESTS_UNIT_ALLOC_FAIL_H

/* The nth allocation from now on fails, once; 0 = none does. */
void alloc_fail_nth(long nth);
/* Allocations since the last alloc_fail_nth(). */
long alloc_fail_count(void);

#endif
