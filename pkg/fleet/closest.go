package fleet

// Closest returns the word nearest to what was typed, or "" if none is near
// enough to be what was meant. It is for "did you mean" in messages.
func Closest(typed string, words []string) string {
	best, bestDistance := "", 1+len(typed)/3 // about one slip in three letters
	for _, w := range words {
		if d := distance(typed, w, bestDistance); d < bestDistance+1 && (best == "" || d < bestDistance) {
			best, bestDistance = w, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b, or more than limit if it exceeds limit.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
