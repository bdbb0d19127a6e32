// spin [SECONDS]: a Go program that spends half of the CPU seconds in main and half in a goroutine.
//
// Expected, root first:
//	runtime.goexit, runtime.main, main.main, main.a, main.b, main.c, main.spin
//	runtime.goexit, (a wrapper that the compiler makes), main.worker, main.a, main.b, main.c, main.spin
// runtime.goexit is where a goroutine begins; the garbage collector and the scheduler have other roots.
package main

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
func spin(end int64) {
	for cpuNs() < end {
		for i := uint64(0); i < 1000000; i++ {
			sink += i ^ (i << 7)
		}
	}
}

//go:noinline
func c(end int64) {
	spin(end)
	sink++
}

//go:noinline
func b(end int64) {
	c(end)
	sink++
}

//go:noinline
func a(end int64) {
	b(end)
	sink++
}

//go:noinline
func worker(end int64, done chan<- bool) {
	a(end)
	done <- true
}

func main() {
	seconds := 1.0
	if len(os.Args) > 1 {
		var err error
		if seconds, err = strconv.ParseFloat(os.Args[1], 64); err != nil || !(seconds > 0) {
			println("not a positive number:", os.Args[1])
			os.Exit(2)
		}
	}
	start, half := cpuNs(), int64(seconds*0.5e9)
	a(start + half)
	done := make(chan bool)
	go worker(start+2*half, done)
	<-done
}
