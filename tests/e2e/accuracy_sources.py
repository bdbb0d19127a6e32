"""accuracy_sources - what the programs of accuracy_programs.py work on: the same in every run."""

PERL = """
my %seen; my $sum = 0;
for my $i (1 .. 1400000) {
    my $line = sprintf("%d request %x took %s", $i, $i * 7919, "x" x ($i % 40));
    $seen{$1} += length $2 if $line =~ /request ([0-9a-f]{3}).* took (x+)/;
    $sum += unpack("%32C*", $line);
}
my @order = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
print join(",", @order[0 .. 5]), " $sum\\n";
"""

_PYTHON = """
import json, re, threading
words = re.compile(r"(\\w+)-(\\d+)")
def work(n):
    for i in range(n):
        rows = [{"key": "w%d-%d" % (k * i % 97, k), "values": list(range(20))} for k in range(150)]
        again = json.loads(json.dumps(rows))
        again.sort(key=lambda row: (row["key"], len(row["values"])))
        sum(int(words.match(row["key"]).group(2)) for row in again)
work(ROUNDS)
for i in range(THREADS):
    thread = threading.Thread(target=work, args=(0,))
    thread.start()
    thread.join()
"""


def python(rounds, threads=0):
    return _PYTHON.replace("ROUNDS", str(rounds)).replace("THREADS", str(threads))


#: Until 3.10 each level is frames of C: 200 KiB of them.
PYTHON_RECURSION = """
import time
def recurse(n):
    if n:
        return list(map(recurse, [n - 1]))[0]
    end, total = time.process_time() + 3, 0
    while time.process_time() < end:
        total += sum(i ^ (i << 3) for i in range(2000))
    return total
recurse(190)
"""

JAVA = """
import java.util.*;
import java.util.stream.*;
public class Work {
    static long hash(String s) {
        long h = 7;
        for (char c : s.toCharArray())
            h = h * 31 + c;
        return h;
    }
    public static void main(String[] args) {
        long sum = 0;
        for (int round = 0; round < Integer.parseInt(args[0]); round++) {
            final int r = round;
            List<String> list = IntStream.range(0, 20000).mapToObj(i -> "k" + (i * 31 ^ r))
                .sorted(Comparator.reverseOrder()).collect(Collectors.toList());
            Map<Long, List<String>> groups =
                list.stream().collect(Collectors.groupingBy(s -> hash(s) % 97));
            sum += groups.values().stream().mapToLong(g -> hash(g.get(0))).sum();
        }
        System.out.println(sum);
    }
}
"""

SQL = """
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250000)
INSERT INTO t SELECT i, 'name-' || (i * 7919 % 10007), i * 0.37 FROM n;
CREATE INDEX by_name ON t(name);
SELECT count(*), sum(a.value) FROM t a JOIN t b ON a.name = b.name WHERE b.id < 20000;
SELECT name, json_group_array(value) FROM t GROUP BY name ORDER BY sum(value) DESC LIMIT 3;
"""

# A statement a line, as single-user mode takes them.
POSTGRES = """
CREATE TABLE t AS SELECT i AS id, md5(i::text) AS name FROM generate_series(1, 350000) i;
SELECT count(*), sum(a.id) FROM t a JOIN t b ON left(a.name, 4) = left(b.name, 4);
SELECT left(name, 2), json_agg(id ORDER BY name) FROM t GROUP BY 1 ORDER BY 1 LIMIT 1;
"""

_CXX = """
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>
// each of the copies
template <int N> struct Node {
    std::map<std::string, std::vector<std::tuple<int, Node<N - 1>>>> children;
    template <class F> int each(F f) const {
        int n = 0;
        for (auto &child : children)
            for (auto &entry : child.second)
                n += std::get<1>(entry).each([&](int d) { return f(d + std::get<0>(entry)); });
        return n + f(int(children.size()));
    }
};
template <> struct Node<0> {
    template <class F> int each(F f) const { return f(0); }
};
template <int... I> auto all(std::integer_sequence<int, I...>) {
    return std::make_tuple(std::function<int(int)>([](int x) { return x * I; })...);
}
int work(const Node<3> &node, const std::string &text)
{
    std::vector<std::string> words(text.size(), text);
    std::sort(words.begin(), words.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
    return int(words.size()) + node.each([](int d) { return d * 2; }) +
           std::get<3>(all(std::make_integer_sequence<int, TUPLE>()))(int(text.size()));
}
"""


def cxx(tuple_size, copies=1):
    """A tuple is as many classes deep as it has elements, and so is a compiler's recursion."""
    head, body = _CXX.split("// each of the copies\n")
    # Tuples of other types: what one copy has made, another does not make again.
    for i in range(copies):
        copy = body.replace("int(int)>(", f"int({'long, ' * i}int)>(").replace("[](int x)", f"[]({'long, ' * i}int x)")
        copy = copy.replace("(int(text.size()));", f"({'0, ' * i}int(text.size()));")
        head += f"namespace copy{i} {{{copy}}}\n"
    return head.replace("TUPLE", str(tuple_size))


def rust(ntypes=700):
    return "".join(
        "#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n"
        f"pub enum E{i} {{ A(u32), B {{ x: String, y: Vec<u8> }}, C(Box<E{i}>), D }}\n"
        for i in range(ntypes)
    )


_GO = """
func f%d(m map[string]int, s []string) int {
	for k, v := range m {
		s = append(s, k+string(rune(v+%d)))
	}
	for i := range s {
		m[s[i]] += len(s) - i
	}
	return len(m)
}
"""


def go(nfunctions=200):
    """Of the standard library it needs the runtime alone, which is seconds of work by itself."""
    functions = "".join(_GO % (i, i) for i in range(nfunctions))
    return f"package main\n{functions}\nfunc main() {{ println(f0(nil, nil)) }}\n"


MAKEFILE = """
OBJS := $(patsubst %.c,%.o,$(wildcard *.c))
all: $(OBJS)
	/usr/bin/ar rcs all.a $(OBJS)
%.o: %.c
	/usr/bin/gcc -O2 -c -o $@ $<
"""


def c(i):
    """A file of the tree that is made."""
    return (
        f"#include <stdio.h>\n#include <stdlib.h>\nint f{i}(int n)\n{{\n\tint s = 0;\n"
        f"\tfor (int i = 0; i < n; i++)\n\t\ts += rand() % {i + 2};\n"
        '\treturn printf("%d", s);\n}\n'
    )


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(small C CXX)
add_library(small small.c more.cc)
"""


def git(commits=500, lines=400):
    """A stream for fast-import: every commit changes some lines of a file."""
    stream = []
    for n in range(commits):
        kept = [f"line {i} {i * 7919:x}" for i in range(lines)]
        for i in range(n % 40, lines, 40):
            kept[i] = f"line {i} {(n + 1) * (i + 1) * 48271 % 2147483647:x}"
        text = "\n".join(kept)
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@example.com> {1700000000 + n} +0000\n"
            f"data 2\nc\nM 644 inline d{n % 20}/f{n % 50}.c\ndata {len(text)}\n{text}\n"
        )
    return "".join(stream)


def log(lines=600000):
    """40 MB of lines that compress like logs."""
    state = 1
    for i in range(lines):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield f"{state >> 40} request {i % 977} took {state >> 52} us in {state % 7919:x}\n"
