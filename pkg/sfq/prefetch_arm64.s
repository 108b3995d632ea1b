#include "textflag.h"

// func warm3(a, b, c *uint64)
TEXT ·warm3(SB), NOSPLIT, $0-24
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	MOVD c+16(FP), R2
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	PRFM (R2), PLDL1KEEP
	RET

// func warmPage(p *idPage)
TEXT ·warmPage(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func warmTenant(t *tenant, q *classQueue)
TEXT ·warmTenant(SB), NOSPLIT, $0-16
	MOVD t+0(FP), R0
	MOVD q+8(FP), R1
	PRFM (R1), PLDL1KEEP
	PRFM 64(R1), PLDL1KEEP
	PRFM (R0), PLDL1KEEP
	PRFM 64(R0), PLDL1KEEP
	PRFM 128(R0), PLDL1KEEP
	PRFM 192(R0), PLDL1KEEP
	RET
