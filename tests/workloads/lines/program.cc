/*
 * Code of every kind that debug information has to tell apart: functions inlined into each other over several
 * levels and files, templates, lambdas, cold parts, and functions that the linker drops. tests/e2e/test_lines.py
 * builds it in many ways and never runs it.
 */
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "inlined.h"

template <class T> struct Sum {
	T total{};
	void add(T x)
	{
		if (__builtin_expect(x < T{}, 0))
			throw std::runtime_error("negative: " + std::to_string(x));
		total += x;
	}
};

namespace shapes
{
struct Square {
	int side;
	int area() const { return squared(side) + squared(side + 1); }
};

namespace
{
__attribute__((noinline)) int perimeter(const Square &s)
{
	return s.side * 4 + squared(s.side);
}
}
}

/* Nobody calls these: with sections of their own the linker drops them. */
int dropped_one(int n)
{
	return squared(n) + cubed(n);
}

int dropped_two(const std::vector<int> &v)
{
	int n = 0;

	for (int x : v)
		n += dropped_one(x);
	return n;
}

extern "C" __attribute__((noinline)) int plain(int n)
{
	return cubed(n) + 1;
}

int main(int argc, char **)
{
	std::vector<std::string> words;
	Sum<long> sum;
	Sum<double> other;

	for (int i = 0; i < argc * 100; i++)
		words.push_back(std::to_string(shapes::Square{ i }.area() + plain(i)));
	std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
		return a.size() < b.size() || a < b;
	});
	for (auto &w : words) {
		sum.add(std::stol(w));
		other.add(std::stod(w));
	}
	std::printf("%ld %f %d\n", sum.total, other.total, shapes::perimeter({ argc }));
	return 0;
}
