// A library for C programs (-buildmode=c-shared): go_host.c calls it.
//
// Expected, root first: the C program's frames, its call of GoSpin, crosscall2, runtime.cgocallback, ...,
// main.GoSpin, main.spin.
package main

import "C"

var sink uint64

//go:noinline
func spin(n int64) {
	for i := uint64(0); i < uint64(n); i++ {
		sink += i ^ (i << 7)
	}
}

//export GoSpin
func GoSpin(n C.long) {
	spin(int64(n))
	sink++
}

func main() {}
