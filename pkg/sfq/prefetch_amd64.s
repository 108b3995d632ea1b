#include "textflag.h"

// func warm3(a, b, c *uint64)
TEXT ·warm3(SB), NOSPLIT, $0-24
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	MOVQ c+16(FP), CX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 (CX)
	RET

// func warmPage(p *idPage)
TEXT ·warmPage(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func warmTenant(t *tenant, q *classQueue)
TEXT ·warmTenant(SB), NOSPLIT, $0-16
	MOVQ t+0(FP), AX
	MOVQ q+8(FP), BX
	PREFETCHT0 (BX)
	PREFETCHT0 64(BX)
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	PREFETCHT0 128(AX)
	PREFETCHT0 192(AX)
	RET
