// cgo in_c|in_callback|deep_in_c|deep_in_callback [SECONDS]: a Go program whose CPU seconds are spent in C, or in
// Go that C called; deep: in C, or Go, called by Go that C called that Go called, twice over.
//
// Expected, root first:
//	runtime.goexit, runtime.main, main.main, main.(wrapper of c_a), runtime.cgocall, runtime.asmcgocall,
//	_cgo_..., c_a, c_b, c_spin
// and from c_b in_callback's: goSpin, crosscall2, runtime.cgocallback, ..., main.goSpin, main.spin; and
// what is deep has c_a, c_b, goDeep, crosscall2, ..., main.goDeep before that, twice.
package main

/*
static volatile unsigned long sink;
extern void goSpin(long);
extern void goDeep(long, long);

static __attribute__((noinline)) void c_spin(void)
{
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i ^ (i << 7);
}

static __attribute__((noinline)) void c_b(long callback, long depth)
{
	if (depth)
		goDeep(callback, depth);
	else if (callback)
		goSpin(callback);
	else
		c_spin();
	sink++;
}

static __attribute__((noinline)) void c_a(long callback, long depth)
{
	c_b(callback, depth);
	sink++;
}
*/
import "C"

import (
	"os"
	"strconv"
	"syscall"
)

var sink uint64

func cpuNs() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

//go:noinline
func spin(n int64) {
	for i := uint64(0); i < uint64(n); i++ {
		sink += i ^ (i << 7)
	}
}

//export goSpin
func goSpin(n C.long) {
	spin(int64(n))
	sink++
}

//export goDeep
func goDeep(callback, depth C.long) {
	C.c_a(callback, depth-1)
	sink++
}

func main() {
	modes := map[string][2]C.long{
		"in_c": {0, 0}, "in_callback": {1000000, 0}, "deep_in_c": {0, 2}, "deep_in_callback": {1000000, 2},
	}
	var mode [2]C.long
	known := false
	if len(os.Args) > 1 {
		mode, known = modes[os.Args[1]]
	}
	if !known {
		println("usage: cgo in_c|in_callback|deep_in_c|deep_in_callback [SECONDS]")
		os.Exit(2)
	}
	seconds := 1.0
	if len(os.Args) > 2 {
		var err error
		if seconds, err = strconv.ParseFloat(os.Args[2], 64); err != nil || !(seconds > 0) {
			println("not a positive number:", os.Args[2])
			os.Exit(2)
		}
	}
	for end := cpuNs() + int64(seconds*1e9); cpuNs() < end; {
		C.c_a(mode[0], mode[1])
	}
}
