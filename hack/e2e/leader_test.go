package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// electing are the flags of a controller that takes part in an election with short times.
var electing = []string{
	"--leader-elect", "--leader-elect-namespace=foo-system", "--leader-elect-lease-duration=3s",
	"--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
	"--metrics-bind-address=127.0.0.1:0",
}

// An electorate is two controllers, of which one leads.
type electorate struct {
	*env
	leader, standby *process
}

// newElectorate starts two controllers on a namespace of their own.
func newElectorate(t *testing.T) *electorate {
	t.Helper()
	e := &electorate{env: newEnv(t, apiCluster)}
	leases := e.kube.CoordinationV1().Leases("foo-system")
	if err := leases.Delete(t.Context(), controllerName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	e.leader = e.start(t)
	e.leader.waitForLog(t, "Became leader")
	e.standby = e.start(t)
	e.standby.waitForLog(t, "Standing by")
	return e
}

func (e *electorate) start(t *testing.T) *process {
	t.Helper()
	flags := append([]string{"--kubeconfig", e.kubeconfig(t, nil), "--namespace", e.namespace}, electing...)
	return startController(t, flags...)
}

// create creates a Foo, and waits until p has created its Deployment.
func (e *electorate) create(t *testing.T, p *process, name string) {
	t.Helper()
	e.kubectl(t, fmt.Sprintf(`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo",
		"metadata":{"namespace":%q,"name":%q},"spec":{"deploymentName":%q,"replicas":1}}`, e.namespace, name, name),
		"create", "-f", "-")
	until(t, "the Deployment of "+name, func(ctx context.Context) (bool, error) {
		_, err := e.kube.AppsV1().Deployments(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if created := `deployment="` + e.namespace + "/" + name + `"`; !strings.Contains(p.log.String(), created) {
		t.Errorf("another process has created the Deployment of %s:\n%s", name, p.log)
	}
}

func TestTheStandbyTakesOverWhenTheLeaderStops(t *testing.T) {
	e := newElectorate(t)
	e.create(t, e.leader, "first")
	start := time.Now()
	e.leader.signal(syscall.SIGTERM)
	e.standby.waitForLog(t, "Became leader")
	t.Logf("took over after %s", time.Since(start))
	e.leader.stop(t)
	e.leader.waitForLog(t, "Released the Lease")
	e.create(t, e.standby, "second")
}

func TestTheStandbyTakesOverWhenTheLeaderIsKilled(t *testing.T) {
	e := newElectorate(t)
	start := time.Now()
	e.leader.kill()
	e.standby.waitForLog(t, "Became leader")
	t.Logf("took over after %s", time.Since(start))
	e.create(t, e.standby, "first")
}

// A leader that was stopped for longer than its lease, with events that wait, does not write when it continues.
func TestALeaderThatWasStoppedDoesNotWrite(t *testing.T) {
	e := newElectorate(t)
	e.create(t, e.leader, "first")
	_ = e.leader.cmd.Process.Signal(syscall.SIGSTOP)
	start := time.Now()
	e.standby.waitForLog(t, "Became leader")
	t.Logf("took over after %s", time.Since(start))
	e.create(t, e.standby, "second")
	_ = e.leader.cmd.Process.Signal(syscall.SIGCONT)
	e.leader.code = 1 // The leadership is lost, so the process ends.
	<-e.leader.done
	if strings.Contains(e.leader.log.String(), e.namespace+"/second") {
		t.Errorf("the former leader has written:\n%s", e.leader.log)
	}
}
