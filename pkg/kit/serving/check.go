package serving

import "errors"

// Check is one named question about the process, for /healthz or /readyz.
type Check struct {
	// Name is shown in the response, and is the last part of the path /healthz/NAME or /readyz/NAME. It has lower case
	// letters, digits, dots and dashes, and no other check of the page has it.
	Name string
	// Do returns nil if all is well, and otherwise the reason. It is called for each request, by several goroutines at
	// a time. It must return at once: it reads memory, and does not wait for a lock that a request to the API server
	// may hold.
	//
	// Everybody who reaches the port can read the reason. It may have names of objects and messages of the API server.
	// It must not have credentials or fields of objects.
	Do func() error
}

// Until returns a Check that fails until done is closed, and from then on never fails. It is for the start of a cache:
// done is the Done channel of cache.DoneChecker.
//
// The reason of the failure is waiting. If why is not nil and returns text, that text follows. why is called for each
// request that comes before the end of done, with the limits that Check.Do has.
func Until(name string, done <-chan struct{}, waiting string, why func() string) Check {
	return Check{Name: name, Do: func() error {
		select {
		case <-done:
			return nil
		default:
		}
		if why != nil {
			if text := why(); text != "" {
				return errors.New(waiting + ": " + text)
			}
		}
		return errors.New(waiting)
	}}
}
