/*
 * chain_cpp [SECONDS] - templates, and exceptions thrown through them.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, layer<3>, layer<2>, layer<1>,
 * layer<0>, and above it spin, or, for a part of the time, __cxa_throw and the unwinder of libgcc.
 */
#include "workload.h"

#include <stdexcept>
#include <string>

namespace {

NOINLINE void spin()
{
	work();
	keep(4);
}

template <int depth> NOINLINE void layer(int round)
{
	std::string local(64 + static_cast<size_t>(round % 7), 'x'); /* to be destroyed by the unwinder */

	layer<depth - 1>(round);
	keep(local.size());
}

template <> NOINLINE void layer<0>(int round)
{
	spin();
	for (int i = 0; i < 50; i++) {
		try {
			if (round >= 0)
				throw std::runtime_error("inner");
		} catch (const std::runtime_error &e) {
			keep(static_cast<uint64_t>(e.what()[0]));
		}
	}
	if (round % 2)
		throw std::out_of_range("outer");
	keep(5);
}

} /* namespace */

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + static_cast<uint64_t>(number_arg(argc, argv, 1, 1) * 1e9);
	int round = 0;

	while (cpu_ns() < end) {
		try {
			layer<3>(round);
		} catch (const std::out_of_range &) {
			keep(1);
		}
		round = (round + 1) % 1000000;
	}
	return 0;
}
