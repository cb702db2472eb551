package fairqueue

import "time"

// A Class is the reason for which a key is added. It decides how soon the key is handed out within its namespace.
type Class int

const (
	// Change is the class of a key whose object, or another that concerns it, was changed.
	Change Class = iota
	// Retry is the class of a key that comes back after a delay.
	Retry
	// Failed is the class of a Retry of an operation that failed. It needs a token of the common limiter.
	Failed
	// Initial is the class of a key of the initial list, when the controller starts.
	Initial
)

// handicap is how much later than a Change a key of the class is handed out.
func (c Class) handicap() time.Duration {
	switch c {
	case Change:
		return 0
	case Retry, Failed:
		return 5 * time.Second
	}
	return 30 * time.Second
}

// A claim is what the classes give to a key with which it was added since it was last handed out.
type claim struct {
	made       bool
	handicap   time.Duration // The smallest one.
	needsToken bool          // Each of them was Failed.
}

// and returns the claim of a key that is added once more.
func (c claim) and(class Class) claim {
	if !c.made {
		return claim{made: true, handicap: class.handicap(), needsToken: class == Failed}
	}
	c.handicap = min(c.handicap, class.handicap())
	c.needsToken = c.needsToken && class == Failed
	return c
}
