/*
 * spin32 - a 32-bit program: a, b and spin for a second of CPU time or more.
 *
 * Expected: the frame of spin, marked as 32-bit.
 */
	.text
	.globl _start
_start:
	call	a
	mov	$1, %eax
	xor	%ebx, %ebx
	int	$0x80
a:
	push	%ebp
	mov	%esp, %ebp
	call	spin
	pop	%ebp
	ret
spin:
	push	%ebp
	mov	%esp, %ebp
	mov	$4000000000, %ecx
1:	dec	%ecx
	jnz	1b
	pop	%ebp
	ret
	.section .note.GNU-stack,"",@progbits
