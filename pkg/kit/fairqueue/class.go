package fairqueue

import "time"

// A Class is the reason for which a key is added. It decides how soon the key is handed out.
type Class int

const (
	// Change is the class of a key whose object, or another that concerns it, was changed.
	Change Class = iota
	// Retry is the class of a key that comes back although nothing that it asks for has changed.
	Retry
	// Failed is the class of a Retry of an operation that failed. It needs a token of the common limiter.
	Failed
	// Initial is the class of a key of a list of all objects: when the controller starts, and at a resync.
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
	made     bool
	handicap time.Duration // The smallest one.
	changed  bool          // One of them was Change.
	failed   bool          // One of them was Failed.
	initial  bool          // Each of them was Initial.
}

// and returns the claim of a key that is added once more.
func (c claim) and(class Class) claim {
	if !c.made {
		c = claim{made: true, handicap: class.handicap(), initial: true}
	}
	c.handicap = min(c.handicap, class.handicap())
	c.changed = c.changed || class == Change
	c.failed = c.failed || class == Failed
	c.initial = c.initial && class == Initial
	return c
}

// needsToken reports whether the key comes back because of a failure, and not because of a change.
func (c claim) needsToken() bool { return c.failed && !c.changed }
