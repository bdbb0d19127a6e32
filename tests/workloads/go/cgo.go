// cgo in_c|in_callback [SECONDS]: a Go program whose CPU seconds are spent in C, or in Go that C called.
//
// Expected, root first:
//	runtime.goexit, runtime.main, main.main, main.(wrapper of c_a), runtime.cgocall, runtime.asmcgocall,
//	_cgo_..., c_a, c_b, c_spin
// and from there in_callback's: c_callback, ..., main.goSpin.
package main

/*
static volatile unsigned long sink;
extern void goSpin(long);

static __attribute__((noinline)) void c_spin(void)
{
	for (unsigned long i = 0; i < 1000000; i++)
		sink += i ^ (i << 7);
}

static __attribute__((noinline)) void c_b(long callback)
{
	if (callback)
		goSpin(callback);
	else
		c_spin();
	sink++;
}

static __attribute__((noinline)) void c_a(long callback)
{
	c_b(callback);
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

func main() {
	callback := C.long(0)
	if len(os.Args) > 1 && os.Args[1] == "in_callback" {
		callback = 1000000
	} else if len(os.Args) < 2 || os.Args[1] != "in_c" {
		println("usage: cgo in_c|in_callback [SECONDS]")
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
		C.c_a(callback)
	}
}
