package main

import (
	"context"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/backoff"
	"example.com/foo-controller/pkg/plan"
)

// toleratedConflicts is how often in a row a deletion may meet a newer version of the Deployment before that counts
// as a refusal.
const toleratedConflicts = 3

// pauses say what is not to be tried again yet although nothing has failed, or although what failed must not be in
// the way of the rest. What failed and is in the way has its pause in the queue.
type pauses struct {
	// corrections are patches of a Deployment that something else keeps changing, by Foo.
	corrections *backoff.Backoff[cache.ObjectName]
	// creations are of a Deployment that something else keeps deleting, by Foo.
	creations *backoff.Backoff[cache.ObjectName]
	// reports are statuses that something else keeps writing, by Foo.
	reports *backoff.Backoff[cache.ObjectName]
	// deletions are those that failed of Deployments that nobody needs, by Deployment.
	deletions *backoff.Backoff[cache.ObjectName]
}

func newPauses() pauses {
	pause := func() *backoff.Backoff[cache.ObjectName] {
		return backoff.New[cache.ObjectName](time.Second, time.Minute, nil)
	}
	return pauses{corrections: pause(), creations: pause(), reports: pause(), deletions: pause()}
}

// forget ends the pauses of a Foo, but for those of deletions.
func (p *pauses) forget(foo cache.ObjectName) {
	p.corrections.Forget(foo)
	p.creations.Forget(foo)
	p.reports.Forget(foo)
}

// tell adds to seen what is not to be tried yet.
func (p *pauses) tell(seen *plan.Seen) {
	key := cache.MetaObjectToName(seen.Foo)
	if pause, why := p.corrections.Hold(key); why != nil {
		seen.Overridden = &plan.WaitError{After: pause, For: plan.CorrectionBackoff, Err: why}
	}
	if pause, why := p.creations.Hold(key); why != nil {
		seen.Recreated = &plan.WaitError{After: pause, For: plan.CreationBackoff, Err: why}
	}
	for _, dep := range seen.Owned {
		if pause, why := p.deletions.Hold(cache.MetaObjectToName(dep)); why != nil {
			if seen.Undeleted == nil {
				seen.Undeleted = map[string]*plan.WaitError{}
			}
			seen.Undeleted[dep.Name] = &plan.WaitError{After: pause, For: plan.DeletionBackoff, Err: why}
		}
	}
}

// undeleted returns what is to be done when a Deployment that is not needed could not be deleted, or the look before
// that failed: to go on at once without it, since it must not be in the way of what somebody needs, and to try again
// later.
func (c *Controller) undeleted(ctx context.Context, foo *v1alpha1.Foo, failed *plan.WriteError) error {
	key := cache.MetaObjectToName(foo)
	if plan.OutcomeOf(failed).Quiet && c.retries.NumRequeues(key) < toleratedConflicts {
		return failed
	}
	utilruntime.HandleErrorWithContext(ctx, failed, "Deletion failed, will try again")
	old := cache.NewObjectName(foo.Namespace, failed.Deployment)
	c.pauses.deletions.When(old)
	c.pauses.deletions.Because(old, failed)
	return nextStep()
}

// nextStep brings a key back at once, to go on with what else there is to do.
func nextStep() error {
	return &plan.WaitError{After: 5 * time.Millisecond, For: plan.NextStep}
}
