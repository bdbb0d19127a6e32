/* Assembly with lines, whose names are in the symbol table alone. */
	.text
	.globl assembly
	.type assembly, @function
assembly:
	lea	(%rdi, %rdi, 2), %eax
	add	$7, %eax
	ret
	.size assembly, . - assembly
	.section .note.GNU-stack,"",@progbits
