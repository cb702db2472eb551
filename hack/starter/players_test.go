package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"acme.example.com/widget-controller/pkg/apis/acme/v1alpha1"
	"example.com/foo-controller/pkg/kit"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/sim/scenario"
	"example.com/foo-controller/pkg/sim/simtest"
)

var (
	rewrite   = flag.Bool("rewrite", false, "rewrite the outputs in scenarios")
	schedules = flag.Int("schedules", 50, "number of schedules that TestSchedules plays")
	seed      = flag.Int64("seed", -1, "the schedule that TestSchedules shows, instead of playing many")
)

// played is what package scenario plays.
var played = scenario.Kind{
	Controller: controllerName, Served: served,
	New: func(ctx context.Context, w scenario.Wiring) (*scenario.Controller, error) {
		clients := clientsFor(w.Config)
		c := New(ctx, clients, newCaches(clients, nil, &kit.Options{}), w.Recorder, w.Workers)
		return &scenario.Controller{Reconciler: c.Reconciler, Watch: c.watch, Run: c.Run}, nil
	},
}

// TestScenarios plays the texts in scenarios. After a change of the controller, this writes the new outputs into them.
// Review the difference:
//
//	go test -run TestScenarios . -rewrite
func TestScenarios(t *testing.T) { scenario.Play(t, played, "scenarios/*.txt", *rewrite) }

// TestSchedules plays schedules of random edits and faults. To see what happens in one of them:
//
//	go test -run TestSchedules -v . -seed=2
func TestSchedules(t *testing.T) {
	if *seed >= 0 {
		scenario.ShowSchedule(t, played, users(), *seed, os.Stdout)
		return
	}
	scenario.PlaySchedules(t, played, users, *schedules, "go test -run TestSchedules -v . -seed=")
}

// users edit three Widgets and their children.
func users() scenario.Users {
	names := []string{"a", "b", "c"}
	return scenario.Users{
		Setup: func(ctx context.Context, user *rest.Config) error {
			var errs []error
			for _, name := range names {
				errs = append(errs, create(ctx, user, name))
			}
			return errors.Join(errs...)
		},
		Edits: []scenario.Edit{
			played.Patch(widgetGVR, names, `{"spec":{"replicas":N}}`),
			played.Patch(widgetGVR, names, `{"spec":{"image":"web:N"}}`),
			played.Patch(widgetGVR, names, `{"spec":{"message":"Hello N"}}`),
			played.Patch(configMapGVR, names, `{"data":{"message":"Bye N"}}`),
			played.Patch(configMapGVR, names, `{"metadata":{"ownerReferences":null}}`),
			played.Patch(deploymentGVR, names, `{"spec":{"replicas":N}}`),
			func(ctx context.Context, user *rest.Config, random *rand.Rand) error { // While the children still exist.
				name := names[random.Intn(len(names))]
				widgets := clientsFor(user).widgets.AcmeV1alpha1().Widgets("default")
				return errors.Join(widgets.Delete(ctx, name, metav1.DeleteOptions{}), create(ctx, user, name))
			},
		},
		Dense:  []scenario.Edit{played.Delete(configMapGVR, names), played.Delete(deploymentGVR, names)},
		Resume: deleteOrphans, Check: incomplete,
	}
}

func create(ctx context.Context, user *rest.Config, name string) error {
	w := widget(func(w *v1alpha1.Widget) { w.Name, w.UID = name, "" })
	_, err := clientsFor(user).widgets.AcmeV1alpha1().Widgets("default").Create(ctx, w, metav1.CreateOptions{})
	return err
}

// deleteOrphans deletes the ConfigMaps that are in the way of a Widget, because nobody controls them.
func deleteOrphans(ctx context.Context, user *rest.Config) error {
	configMaps := clientsFor(user).kube.CoreV1().ConfigMaps("default")
	list, err := configMaps.List(ctx, metav1.ListOptions{})
	errs := []error{err}
	for _, c := range list.Items {
		if metav1.GetControllerOf(&c) == nil {
			errs = append(errs, configMaps.Delete(ctx, c.Name, metav1.DeleteOptions{}))
		}
	}
	return errors.Join(errs...)
}

// incomplete returns what Widgets lack of what they ask for. It does not use package plan, which decides that.
func incomplete(s *scenario.Simulation) (wrong []string) {
	for _, obj := range s.Server.Objects(widgetGVR) {
		w := obj.(*v1alpha1.Widget)
		c, _ := s.Server.Object(configMapGVR, w.Namespace, w.Name).(*corev1.ConfigMap)
		d, _ := s.Server.Object(deploymentGVR, w.Namespace, w.Name).(*appsv1.Deployment)
		switch ready := simtest.Condition(s.Server, widgetGVR, w.Namespace, w.Name, state.Ready); {
		case c == nil || c.Data["message"] != w.Spec.Message:
			wrong = append(wrong, fmt.Sprintf("%s: want the message %q in %v", w.Name, w.Spec.Message, c))
		case d == nil || *d.Spec.Replicas != *w.Spec.Replicas || d.Spec.Template.Spec.Containers[0].Image != w.Spec.Image:
			wrong = append(wrong, fmt.Sprintf("%s: want %+v in %v", w.Name, w.Spec, d))
		case ready != "True/Available":
			wrong = append(wrong, fmt.Sprintf("%s: Ready is %s", w.Name, ready))
		}
	}
	return wrong
}
