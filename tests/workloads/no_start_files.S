/*
 * no_start_files - a program of its own _start, without libc, for a second of CPU time or more.
 *
 * Expected, root first: _start, a, spin. Built as no_start_cfi (of a and spin, not of _start) and
 * no_start_debug (the same in .debug_frame alone).
 */
#ifdef DEBUG_FRAME
	.cfi_sections .debug_frame
#endif
	.text
	.globl _start
	.type _start, @function
_start:
	call	a
	mov	$60, %eax
	xor	%edi, %edi
	syscall
	.size _start, . - _start

	.type a, @function
a:
	.cfi_startproc
	sub	$40, %rsp
	.cfi_adjust_cfa_offset 40
	call	spin
	add	$40, %rsp
	.cfi_adjust_cfa_offset -40
	ret
	.cfi_endproc
	.size a, . - a

	.type spin, @function
spin:
	.cfi_startproc
	mov	$4000000000, %ecx
1:	dec	%ecx
	jnz	1b
	ret
	.cfi_endproc
	.size spin, . - spin
	.section .note.GNU-stack,"",@progbits
