package apisim

import (
	"context"
	"math/rand"
	"time"

	"k8s.io/client-go/rest"
)

// A User is somebody who does things now and then, for RunUser.
type User struct {
	Name string // In the trace.
	// Rand decides what is done and when. Nobody else may use it meanwhile.
	Rand *rand.Rand
	// Pause is how long there is between two edits on average: each time it is between nothing and twice that.
	Pause time.Duration
	// Edits are what the user may do. Those that come more than once are more likely. An edit that is refused is
	// what users have to live with: the error goes into the trace.
	Edits []func(ctx context.Context, config *rest.Config, random *rand.Rand) error
	// Times is how many edits there are. 0: until the context ends.
	Times int
}

// RunUser does what the user does, through a client like any other's. It returns when there are no more edits to
// make, or ctx ends.
func RunUser(ctx context.Context, s *Server, user User) {
	config := s.Config(user.Name)
	for done := 0; len(user.Edits) > 0 && (user.Times == 0 || done < user.Times); done++ {
		if err := pause(ctx, time.Duration(user.Rand.Int63n(int64(2*user.Pause)+1))); err != nil {
			return
		}
		edit := user.Edits[user.Rand.Intn(len(user.Edits))]
		if err := edit(ctx, config, user.Rand); err != nil && ctx.Err() == nil {
			s.Note("%s: %v", user.Name, err)
		}
	}
}
