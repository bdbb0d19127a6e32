// paths MODE [SECONDS]: Go code that leaves the goroutine's stack, or has no frame pointer, in a loop.
//
//	callers  runtime.Callers, which works on the system stack
//	clock    time.Now, which calls the vDSO on the system stack
//	hash     SHA-256, whose assembly uses the frame pointer's register for other things
//	grow     goroutines whose stack is copied to a larger one again and again
//
// Expected, root first: runtime.goexit, runtime.main, main.main, main.MODE, ...; of grow the goroutines
// begin with main.grow.func1.
package main

import (
	"crypto/sha256"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
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
func callers(end int64) {
	pcs := make([]uintptr, 64)
	for cpuNs() < end {
		for i := 0; i < 1000; i++ {
			sink += uint64(runtime.Callers(0, pcs))
		}
	}
}

//go:noinline
func clock(end int64) {
	for cpuNs() < end {
		for i := 0; i < 10000; i++ {
			sink += uint64(time.Now().Nanosecond())
		}
	}
}

//go:noinline
func hash(end int64) {
	data := make([]byte, 1<<16)
	for cpuNs() < end {
		sum := sha256.Sum256(data)
		sink += uint64(sum[0])
	}
}

//go:noinline
func deep(n int, words [128]uint64) uint64 {
	if n == 0 {
		for i := uint64(0); i < 200000; i++ {
			sink += i ^ (i << 7)
		}
		return words[0]
	}
	words[n%128] += uint64(n)
	return deep(n-1, words) + words[1]
}

//go:noinline
func grow(end int64) {
	for cpuNs() < end {
		done := make(chan uint64)
		go func() { done <- deep(40, [128]uint64{}) }()
		sink += <-done
	}
}

func main() {
	modes := map[string]func(int64){"callers": callers, "clock": clock, "hash": hash, "grow": grow}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		println("usage: paths callers|clock|hash|grow [SECONDS]")
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
	modes[os.Args[1]](cpuNs() + int64(seconds*1e9))
}
