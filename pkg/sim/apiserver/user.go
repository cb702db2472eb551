package apiserver

import (
	"context"
	"math/rand"
	"time"

	"k8s.io/client-go/rest"
)

// A User makes random edits at random times. See RunUser.
type User struct {
	Name string // The name in the trace.
	// Rand chooses the edits and their times. Nothing else may use it while RunUser runs.
	Rand *rand.Rand
	// Pause is the average pause between two edits. Each pause is random, between zero and twice Pause.
	Pause time.Duration
	// Edits are the edits to choose from. An edit that is listed more than once is more likely. The error of an edit
	// is added to the trace, and the user continues.
	Edits []func(ctx context.Context, config *rest.Config, random *rand.Rand) error
	// Times is the number of edits. 0 means that the user continues until the context ends.
	Times int
}

// RunUser makes the edits of the user, through an ordinary client. It returns after the last edit, or when ctx ends.
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
