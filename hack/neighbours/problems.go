package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A problem is what happens in the namespace of the tenant while the delays next door are measured.
type problem struct {
	name string
	// olderCRD: the CRD has no rule for times yet.
	olderCRD bool
	// prepare makes the problem. The controller runs.
	prepare func(ctx context.Context, p *place) error
	// keep keeps it up until ctx ends.
	keep func(ctx context.Context, p *place) error
	// over reports whether it is over before the end of the duration.
	over func(ctx context.Context, p *place) (bool, error)
	// restart: it is measured once more after a restart of the controller.
	restart bool
	// patience is how long a sample waits.
	patience time.Duration
	// interval is the time between two samples. 0 means that there are ten in the duration.
	interval time.Duration
}

const (
	refusedFoos = 1500
	rivals      = 3000
	hangingFoos = 100
	shared      = "shared"
	edited      = "edited"
)

// problems returns the problems in the order in which they are measured.
func problems(opts options) []problem {
	all := []problem{
		{name: "nothing"},
		{name: fmt.Sprintf("%d Foos whose Deployments are refused", refusedFoos), prepare: refuse},
		{
			name:    fmt.Sprintf("%d Foos name one Deployment, which is annotated twice a second", rivals),
			prepare: nameOne, keep: annotate,
		},
		{
			name:    fmt.Sprintf("%d Foos name one Deployment, which is deleted every five seconds", rivals),
			prepare: nameOne, keep: deleteAgain,
		},
		{name: fmt.Sprintf("%d Foos behind a webhook that hangs", hangingFoos), prepare: hangUp},
		{
			name: "a Foo that cannot be read", olderCRD: true, prepare: createOne, keep: storeUnreadable,
			restart: true, patience: 30 * time.Second,
		},
		{name: "one Foo is edited 100 times a second", prepare: createOne, keep: edit},
		{name: "one Foo whose Deployment is refused is edited 100 times a second", prepare: refuseOne, keep: edit},
		{
			name: fmt.Sprintf("a cold start of %d Foos", opts.coldStart), prepare: startCold(opts.coldStart),
			over: hasDeployments(opts.coldStart), interval: 500 * time.Millisecond,
		},
	}
	for i := range all {
		all[i].setDefaults()
	}
	return all
}

func (p *problem) setDefaults() {
	if p.patience == 0 {
		p.patience = 2 * time.Minute
	}
	if p.prepare == nil {
		p.prepare = func(context.Context, *place) error { return nil }
	}
	if p.keep == nil {
		p.keep = func(context.Context, *place) error { return nil }
	}
	if p.over == nil {
		p.over = func(context.Context, *place) (bool, error) { return false, nil }
	}
}

// itsOwn is for Foos that name Deployments of their own.
func itsOwn(name string) string { return name }

func refuse(ctx context.Context, p *place) error {
	if err := refuseDeployments(ctx, p); err != nil {
		return err
	}
	return p.createFoos(ctx, refusedFoos, itsOwn)
}

func refuseOne(ctx context.Context, p *place) error {
	if err := refuseDeployments(ctx, p); err != nil {
		return err
	}
	return createOne(ctx, p)
}

// refuseDeployments creates a quota that allows no Deployment. It also writes the status, because no controller for
// quotas runs.
func refuseDeployments(ctx context.Context, p *place) error {
	none := corev1.ResourceList{"count/deployments.apps": resource.MustParse("0")}
	quotas := p.kube.CoreV1().ResourceQuotas(tenant)
	quota, err := quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	if _, err := quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return poll(ctx, time.Minute, func() (bool, error) { return apierrors.IsForbidden(tryDeployment(ctx, p)), nil })
}

func nameOne(ctx context.Context, p *place) error {
	if err := p.createFoos(ctx, rivals, func(string) string { return shared }); err != nil {
		return err
	}
	progress("waiting until the controller has reported all of them")
	return p.waitForReports(ctx, 10*time.Minute)
}

func annotate(ctx context.Context, p *place) error {
	return every(ctx, 500*time.Millisecond, func(i int) error {
		_, err := p.kube.AppsV1().Deployments(tenant).Patch(ctx, shared, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"number":"%d"}}}`, i), metav1.PatchOptions{})
		return err
	})
}

func deleteAgain(ctx context.Context, p *place) error {
	return every(ctx, 5*time.Second, func(int) error {
		err := p.kube.AppsV1().Deployments(tenant).Delete(ctx, shared, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil // The controller has not created it again.
		}
		return err
	})
}

// hangUp starts the webhook, which lives until ctx ends, and creates the Foos.
func hangUp(ctx context.Context, p *place) error {
	hook := startWebhook()
	context.AfterFunc(ctx, hook.stop)
	if err := hook.install(ctx, p); err != nil {
		return err
	}
	return p.createFoos(ctx, hangingFoos, itsOwn)
}

func createOne(ctx context.Context, p *place) error { return p.createFoo(ctx, tenant, edited, edited) }

// storeUnreadable writes a status with a time that Go cannot read. The controller may write it again, so this is
// repeated.
func storeUnreadable(ctx context.Context, p *place) error {
	return every(ctx, time.Second, func(int) error {
		return p.samples.SamplecontrollerV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(tenant).
			Resource("foos").Name(edited).SubResource("status").Body([]byte(`{"status":{"conditions":[{"type":"Ready",
			"status":"Unknown","reason":"X","message":"","lastTransitionTime":"2020-01-01t00:00:00z"}]}}`)).Do(ctx).Error()
	})
}

func edit(ctx context.Context, p *place) error {
	return every(ctx, 10*time.Millisecond, func(i int) error {
		return p.samples.SamplecontrollerV1alpha1().RESTClient().Patch(types.MergePatchType).Namespace(tenant).
			Resource("foos").Name(edited).Body(fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, i%10)).Do(ctx).Error()
	})
}

// startCold creates Foos while no controller runs, and starts one. It returns at the first Deployment.
func startCold(foos int) func(ctx context.Context, p *place) error {
	return func(ctx context.Context, p *place) error {
		p.stopController()
		if err := p.createFoos(ctx, foos, itsOwn); err != nil {
			return err
		}
		p.began = time.Now()
		if err := p.startController(ctx); err != nil {
			return err
		}
		return p.waitForDeployments(ctx, tenant, 1, time.Minute)
	}
}

// hasDeployments reports whether every Foo of a cold start has its Deployment.
func hasDeployments(n int) func(ctx context.Context, p *place) (bool, error) {
	return func(ctx context.Context, p *place) (bool, error) {
		have, err := p.countDeployments(ctx, tenant)
		p.remark = fmt.Sprintf(" (%d have a Deployment after %.0f s)", have, time.Since(p.began).Seconds())
		return have >= n, err
	}
}

// every calls do in each interval until ctx ends, or do fails.
func every(ctx context.Context, interval time.Duration, do func(i int) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := do(i); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
