package fairqueue

import "time"

// A Class is the reason for which a key is added. It decides how soon the key is handed out.
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

// handicap is what is added to the time of a key to get its rank, see the package comment.
func (c Class) handicap() time.Duration {
	if c == Retry || c == Failed {
		return 5 * time.Second
	}
	return 0
}

// A claim is what the classes give to a key with which it was added since it was last handed out.
type claim struct {
	made       bool
	handicap   time.Duration // The smallest one.
	needsToken bool          // Each of them was Failed.
	initial    bool          // Each of them was Initial.
}

// and returns the claim of a key that is added once more.
func (c claim) and(class Class) claim {
	if !c.made {
		return claim{
			made: true, handicap: class.handicap(), needsToken: class == Failed, initial: class == Initial,
		}
	}
	c.handicap = min(c.handicap, class.handicap())
	c.needsToken = c.needsToken && class == Failed
	c.initial = c.initial && class == Initial
	return c
}
