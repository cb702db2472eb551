package conformance

import "slices"

// shorten returns the shortest sequence that it can find for which different returns a difference, and that difference.
// If it finds none, it returns s and difference. It leaves out operations, first many at once. Rapid's own shrinking
// works on random bits and would have to play many more sequences.
func shorten(s sequence, difference string, different func(sequence) string) (sequence, string) {
	for size := max(1, len(s)/2); ; size /= 2 {
		for i := 0; i < len(s); {
			shorter := slices.Delete(slices.Clone(s), i, min(i+size, len(s)))
			if words := different(shorter); words != "" {
				s, difference = shorter, words
				continue
			}
			i += size
		}
		if size <= 1 {
			return s, difference
		}
	}
}
