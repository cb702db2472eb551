package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A sampler measures delays next door. Each kind of sample has a goroutine of its own, so that one that waits does not
// delay the others.
type sampler struct {
	place *place
	seen  *observer
	// round makes the names of the samples unique.
	round    string
	patience time.Duration
	interval time.Duration
	// newFoo, drift and write have the delays until a new Foo has its Deployment, until a Deployment is corrected, and
	// until a ConfigMap is written, which the controller has no part in.
	newFoo, drift, write delays
}

// run takes samples until ctx ends, and waits for the last ones.
func (s *sampler) run(ctx context.Context) error {
	var running sync.WaitGroup
	kinds := []struct {
		take func(ctx context.Context, i int) (delay time.Duration, found bool, err error)
		into *delays
		max  int
	}{
		{s.createFoo, &s.newFoo, 1000}, {s.editDeployment, &s.drift, spares / 2}, {s.writeConfigMap, &s.write, 1000},
	}
	errs := make([]error, len(kinds))
	for k, kind := range kinds {
		running.Go(func() {
			errs[k] = s.repeat(ctx, kind.max, func(i int) (bool, error) {
				delay, found, err := kind.take(context.WithoutCancel(ctx), i)
				if err == nil {
					kind.into.add(delay, found)
				}
				return found, err
			})
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// repeat takes samples, one in each interval. It ends after one that found nothing: the next ones would not either.
func (s *sampler) repeat(ctx context.Context, most int, take func(i int) (bool, error)) error {
	for i := range most {
		next := time.Now().Add(s.interval)
		found, err := take(i)
		if err != nil || !found {
			return err
		}
		pause(ctx, time.Until(next))
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// createFoo measures the time until a new Foo has its Deployment.
func (s *sampler) createFoo(ctx context.Context, i int) (time.Duration, bool, error) {
	name := fmt.Sprintf("new-%s-%d", s.round, i)
	created := s.seen.expect(name, func(*appsv1.Deployment) bool { return true })
	began := time.Now()
	if err := s.place.createFoo(ctx, nextDoor, name, name); err != nil {
		return 0, false, err
	}
	return s.wait(began, created)
}

// editDeployment measures the time until drift is corrected. The second and third edit follow at once, so that the
// correction often meets a conflict.
func (s *sampler) editDeployment(ctx context.Context, i int) (time.Duration, bool, error) {
	name := spare(i)
	if s.round != firstRound {
		name = spare(spares/2 + i)
	}
	drifted := false
	corrected := s.seen.expect(name, func(dep *appsv1.Deployment) bool {
		drifted = drifted || *dep.Spec.Replicas == 5
		return drifted && *dep.Spec.Replicas == 1
	})
	began := time.Now()
	for _, edit := range []string{
		`{"spec":{"replicas":5}}`, `{"metadata":{"annotations":{"edit":"2"}}}`, `{"metadata":{"annotations":{"edit":"3"}}}`,
	} {
		_, err := s.place.kube.AppsV1().Deployments(nextDoor).Patch(ctx, name, types.MergePatchType, []byte(edit),
			metav1.PatchOptions{})
		if err != nil {
			return 0, false, err
		}
	}
	return s.wait(began, corrected)
}

// writeConfigMap measures the time that the API server needs for a write of any client.
func (s *sampler) writeConfigMap(ctx context.Context, i int) (time.Duration, bool, error) {
	name := fmt.Sprintf("raw-%s-%d", s.round, i)
	began := time.Now()
	_, err := s.place.kube.CoreV1().ConfigMaps(nextDoor).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return time.Since(began), true, err
}

// wait waits until something happens, and returns its delay.
func (s *sampler) wait(began time.Time, happened <-chan time.Time) (time.Duration, bool, error) {
	select {
	case at := <-happened:
		return at.Sub(began), true, nil
	case <-time.After(s.patience):
		return s.patience, false, nil
	}
}

// An observer watches the Deployments next door.
type observer struct {
	mu sync.Mutex
	// expected has what is waited for, by the name of the Deployment.
	expected map[string]expectation
}

type expectation struct {
	is       func(*appsv1.Deployment) bool
	happened chan time.Time
}

// observe starts an observer. It ends with ctx.
func observe(ctx context.Context, p *place) (*observer, error) {
	deployments := p.kube.AppsV1().Deployments(nextDoor)
	list, err := deployments.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	watching, err := deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	o := &observer{expected: map[string]expectation{}}
	go func() {
		defer watching.Stop()
		for event := range watching.ResultChan() {
			if dep, ok := event.Object.(*appsv1.Deployment); ok && event.Type != watch.Deleted {
				o.notice(dep)
			}
		}
	}()
	return o, nil
}

// expect returns a channel with the time at which is returns true for a Deployment of this name.
func (o *observer) expect(name string, is func(*appsv1.Deployment) bool) <-chan time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	happened := make(chan time.Time, 1)
	o.expected[name] = expectation{is: is, happened: happened}
	return happened
}

func (o *observer) notice(dep *appsv1.Deployment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, found := o.expected[dep.Name]
	if found && e.is(dep) {
		delete(o.expected, dep.Name)
		e.happened <- time.Now()
	}
}
