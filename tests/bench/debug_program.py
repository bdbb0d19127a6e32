"""debug_program - makes a C++ program that has much debug information: debug_program.py PROGRAM [MIB]

One unit of the standard library's templates over types of its own is compiled, and linked again and
again under other names. Its types are in an unnamed namespace, so that the code of each copy stays,
as in a program of so many sources; what copies share is dropped by the linker, as there.
"""

import os
import re
import subprocess
import sys
import tempfile

UNIT = r"""
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {
template <int N> struct item {
	std::string name;
	std::vector<double> values;
	long key = N;
	bool operator<(const item &o) const { return key < o.key || (key == o.key && name < o.name); }
	double sum() const { return std::accumulate(values.begin(), values.end(), 0.0); }
};

template <int N> double work(int n)
{
	std::map<std::string, std::shared_ptr<item<N>>> by_name;
	std::unordered_map<long, std::vector<item<N>>> by_key;
	std::set<item<N>> sorted;
	std::vector<item<N>> all;
	for (int i = 0; i < n; i++) {
		item<N> it;
		it.name = "item " + std::to_string(i);
		it.values.assign(static_cast<size_t>(i % 7), i * 0.5);
		it.key = i % 13;
		by_name[it.name] = std::make_shared<item<N>>(it);
		by_key[it.key].push_back(it);
		sorted.insert(it);
		all.push_back(std::move(it));
	}
	std::stable_sort(all.begin(), all.end());
	std::function<double(const item<N> &)> value = [n](const item<N> &it) { return it.sum() / n; };
	double total = 0;
	for (const auto &it : all)
		total += value(it);
	for (const auto &[key, items] : by_key)
		total += std::count_if(items.begin(), items.end(), [key = key](const auto &it) { return it.key == key; });
	return total + static_cast<double>(by_name.size() + sorted.size());
}

bool matches(const std::string &s)
{
	static const std::regex pattern("item ([0-9]+)");
	return std::regex_match(s, pattern);
}
} // namespace

extern "C" double entry(int n)
{
	return work<1>(n) + work<2>(n) + work<3>(n) + work<4>(n) + matches("item 1");
}
"""
MAIN = r"""
ENTRIES
int main(int argc, char **)
{
	double sum = 0;
	CALLS
	return sum < 0;
}
"""


def run(*argv):
    subprocess.run(argv, check=True, timeout=600)


def debug_mib(path):
    """Of all sections that are not loaded."""
    text = subprocess.run(["/usr/bin/readelf", "-SW", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return sum(int(size, 16) for size in re.findall(r"\.debug_\w+ +PROGBITS +\w+ \w+ (\w+)", text)) / (1 << 20)


def make(program, mib):
    """Its debug information is about so many MiB; returns how many there are."""
    with tempfile.TemporaryDirectory(prefix="flamed-bench-") as scratch:
        source, unit, main = (os.path.join(scratch, name) for name in ("unit.cc", "unit.o", "main.cc"))
        with open(source, "w", encoding="utf-8") as f:
            f.write(UNIT)
        run("/usr/bin/g++", "-std=c++17", "-O2", "-g", "-c", "-o", unit, source)

        def link(ncopies):
            copies = []
            for i in range(ncopies):
                copies.append(os.path.join(scratch, f"copy{i}.o"))
                run("/usr/bin/objcopy", "--redefine-sym", f"entry=entry{i}", unit, copies[-1])
            with open(main, "w", encoding="utf-8") as f:
                declarations = "".join(f'extern "C" double entry{i}(int);\n' for i in range(ncopies))
                calls = "".join(f"sum += entry{i}(argc);\n" for i in range(ncopies))
                f.write(MAIN.replace("ENTRIES", declarations).replace("CALLS", calls))
            run("/usr/bin/g++", "-o", program, main, *copies)
            return debug_mib(program)

        one, nine = link(1), link(9)
        return link(max(1, round(1 + (mib - one) / ((nine - one) / 8))))


if __name__ == "__main__":
    print(f"{make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100):.0f} MiB of debug information")
